"""A group whose ranks are threads of one process."""

from collections.abc import Sequence
from typing import Any

from threefs.env.side_thread import new_condition
from threefs.errors import Unavailable
from threefs_checkpoint.group import TIMEOUT_S, Buffers, Group


class _Meeting:
    """Where all ranks put something down, and leave with what the others have put down."""

    def __init__(self, world: int) -> None:
        self.condition = new_condition()
        self.world = world
        self.brought: dict[int, Any] = {}
        self.results: dict[int, Sequence[Any]] = {}  # of the last meeting, for ranks that have not left yet
        self.broken = False

    def meet(self, rank: int, thing: Any, timeout_s: float) -> Sequence[Any]:
        with self.condition:
            self._wait(rank, lambda: rank not in self.brought and rank not in self.results, timeout_s)
            self.brought[rank] = thing
            if len(self.brought) == self.world:
                things = [self.brought[number] for number in range(self.world)]
                self.results = dict.fromkeys(range(self.world), things)
                self.brought = {}
                self.condition.notify_all()
            self._wait(rank, lambda: rank in self.results, timeout_s)
            found = self.results.pop(rank)
            self.condition.notify_all()
            return found

    def _wait(self, rank: int, ready: Any, timeout_s: float) -> None:
        self.condition.wait_for(lambda: ready() or self.broken, timeout_s)
        if not ready():
            self.broken = True
            self.condition.notify_all()
            raise Unavailable(f"rank {rank} waits for ranks that do not come: they have ended or failed")


class ThreadGroup(Group):
    """One rank. `ThreadGroup.all_of(world)` makes all of them, one for each thread."""

    def __init__(self, rank: int, meeting: _Meeting, timeout_s: float) -> None:
        self.rank, self.world = rank, meeting.world
        self._meeting = meeting
        self._timeout_s = timeout_s

    @classmethod
    def all_of(cls, world: int, timeout_s: float = TIMEOUT_S) -> list["ThreadGroup"]:
        meeting = _Meeting(world)
        return [cls(rank, meeting, timeout_s) for rank in range(world)]

    def all_gather(self, message: bytes) -> list[bytes]:
        return list(self._meeting.meet(self.rank, message, self._timeout_s))

    def exchange(self, outgoing: Buffers, incoming: Buffers) -> None:
        offered = self._meeting.meet(self.rank, outgoing, self._timeout_s)
        for rank, places in incoming.items():
            for place, sent in zip(places, offered[rank][self.rank], strict=True):
                place[:] = sent
        self._meeting.meet(self.rank, None, self._timeout_s)  # the senders may use their buffers again

    def twin(self) -> Group:
        made = _Meeting(self.world) if self.rank == 0 else None
        meeting = self._meeting.meet(self.rank, made, self._timeout_s)[0]
        return ThreadGroup(self.rank, meeting, self._timeout_s)

    def close(self) -> None:
        """The other ranks do not wait for this one any more."""
        with self._meeting.condition:
            self._meeting.broken = True
            self._meeting.condition.notify_all()
