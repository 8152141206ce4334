"""Disks that lose what they have: all of it, or the last changes. Never while the others may not have it either: the
protocol does not promise to survive the loss of all copies."""

import asyncio
import math
from collections.abc import Callable

from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.disk import Image
from tests.sim.moving_members import MovingMembers
from tests.sim.world import LEASE_S, World

_ABSENT_S = (0.2, 3 * LEASE_S)
_LOOK_S = 0.2
_SETTLE_S = 2 * LEASE_S
OLDER_S = 3 * LEASE_S  # what a primary has heard since is kept by now, though that primary may be gone

End = Callable[[], None]


class EmptiedDisks:
    def __init__(self, world: World, members: MovingMembers) -> None:
        self._world = world
        self._members = members
        self._emptied = False  # a disk has lost what it had; when all is healthy again, it is filled
        self._away: dict[str, Callable[[], None]] = {}  # disks that may come back, and how they do
        self._images: dict[str, tuple[float, Image]] = {}  # copies of disks, and when they were made

    def filled(self) -> bool:
        """Whether each disk that was emptied has got back what it had."""
        self._emptied = self._emptied and not self._world.healthy()
        return not self._emptied

    def copy(self, host: str) -> None:
        self._images[host] = self._world.loop.time(), self._world.disks[host].copied()

    def wipe(self, host: str) -> End | None:
        if not self._world.processes[host].running or not self.spare():
            return None
        self._world.kill(host)
        self.empty(host)
        return self._start(host)

    def older(self, host: str) -> End | None:
        taken_at, image = self._images.get(host, (math.inf, None))
        if not self._world.processes[host].running or not self.spare() or image is None:
            return None
        if self._world.loop.time() - taken_at < OLDER_S:
            return None
        self._world.kill(host)
        self._emptied = True
        self._world.disks[host].restore(image)
        return self._start(host)

    def absent(self, host: str) -> End | None:
        """The disk is not there when the process starts: it finds an empty mount point. When its targets have been
        filled there, the disk comes back."""
        if not self._world.processes[host].running or host in self._away or not self.spare():
            return None
        self._world.kill(host)
        self._emptied = True
        self._away[host] = self._world.take_disk_away(host)
        self._world.start(host)
        return lambda: self._come_back(host)

    async def settle(self) -> None:
        """Faults have ended. Disks that are away come back when all are well, or stay away."""
        until = self._world.loop.time() + _SETTLE_S
        while self._away and self._world.loop.time() < until:
            await asyncio.sleep(_LOOK_S)
        self._away.clear()

    def _come_back(self, host: str) -> None:
        if host not in self._away:
            return
        if not self.spare():
            self._world.loop.call_later(_LOOK_S, self._come_back, host)
            return
        self._world.kill(host)
        self._emptied = True
        self._away.pop(host)()
        self._world.start(host)
        self._world.tell(f"-- the disk of {host} is back")

    def empty(self, host: str) -> None:
        self._emptied = True
        self._world.disks[host].wipe()

    def spare(self) -> bool:
        """Whether every chain has two targets that serve now, and go on to serve."""
        world = self._world
        routing = world.routing()
        if routing is None or not world.healthy() or self._members.holds_any:
            return False
        if any(disk.rotten for disk in world.disks.values()) and self._damaged():
            return False  # its copies may be the last good ones
        return all(len(chain.serving) > 1 for chain in routing.chains.values())

    def _damaged(self) -> bool:
        disks = self._world.disks.values()
        return not all(disk.is_good(*copy) for disk in disks for copy in disk.copies())

    def _start(self, host: str) -> End:
        return lambda: self._world.start(host) if host not in self._world.fabric.down else None


def draw_absences(dice: SeededRandom, world: World, length_s: float) -> list[tuple[float, str, float]]:
    """Moment, host and time of each disk that is missing: one or two of a run."""
    hosts = world.storage_hosts
    return [
        (dice.uniform(0.1, 0.7) * length_s, hosts[dice.below(len(hosts))], dice.uniform(*_ABSENT_S))
        for _ in range(1 + dice.below(2))
    ]
