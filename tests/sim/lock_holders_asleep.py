"""A client falls asleep under a lock, for longer than its lease.

AT doze HOST FOR     when it has the lock, a moment later, till the time is over; what it sends meanwhile may be held up
                     as long
"""

from collections.abc import Callable
from typing import Any

from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.loop import KERNEL
from tests.sim.world import LEASE_S, World
from threefs.leases import client_lease_s

#: Seven ticks make six of a lease, and somebody has to look.
LASTS_S = (1.3 * client_lease_s(LEASE_S), 1.9 * client_lease_s(LEASE_S))
_SOON_S = 0.02


class Dozes:
    def __init__(self, world: World) -> None:
        self._world = world
        self._dice = SeededRandom(world.seed, "dozes")

    def begin(self, host: str) -> Callable[[], Any] | None:
        """How to wake it up; None where it does not run."""
        world, process = self._world, self._world.processes.get(host)
        if process is None or not process.running or host in world.on_hold:
            return None
        undo: list[Callable[[], Any]] = []

        def held() -> None:
            del world.on_hold[host]
            if self._dice.chance(0.5):
                for other in world.storage_hosts:
                    world.fabric.block(host, other)
                    undo.append(lambda other=other: world.fabric.unblock(host, other))  # type: ignore[misc]
            timer = world.loop.call_later(self._dice.uniform(0, _SOON_S), process.pause, context=KERNEL)
            undo.extend((timer.cancel, process.resume))

        def wake() -> None:
            world.on_hold.pop(host, None)
            for each in undo:
                each()

        world.on_hold[host] = held
        return wake


def draw(dice: SeededRandom, world: World) -> list[tuple[float, str, float]]:
    """Moments, hosts and times: one or two of a run."""
    hosts = world.locker_hosts
    return [(dice.uniform(0.3, 4.0), hosts[n % len(hosts)], dice.uniform(*LASTS_S)) for n in range(1 + dice.below(2))]
