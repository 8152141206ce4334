"""The slots that the client processes of a simulation share, as if they ran on one host."""

from tests.harness.simulated.loop import Process
from threefs.env.host_slots import OwnSlots


class SlotsOfProcess(OwnSlots):
    """What one process takes from the slots of its host. When it ends in any way, the kernel gives it all back."""

    def __init__(self, of_host: OwnSlots, process: Process) -> None:
        super().__init__(of_host.limit.most)
        self.limit = of_host.limit
        self._of_host = of_host
        self._mine: set[int] = set()
        process.on_kill[self._end] = None

    def take(self) -> int | None:
        slot = self._of_host.take()
        if slot is not None:
            self._mine.add(slot)
        return slot

    def give(self, slot: int) -> None:
        if slot in self._mine:  # else the process has been killed
            self._mine.remove(slot)
            self._of_host.give(slot)

    def want(self, who: object) -> None:
        self._of_host.want(self)

    def unwant(self, who: object) -> None:
        self._of_host.unwant(self)

    def wanted_by_others(self, who: object) -> bool:
        return self._of_host.wanted_by_others(self)

    def _end(self) -> None:
        self._of_host.unwant(self)
        for slot in self._mine:
            self._of_host.give(slot)
        self._mine.clear()
