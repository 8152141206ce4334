"""A manager falls asleep in the middle of a transaction: its commit is on its way, and it has not heard of the end.

AT swoon HOST FOR     with the next commit of changed chains that it begins, till the time is over
"""

from collections.abc import Callable
from typing import Any

from tests.harness.seeded_random import SeededRandom
from tests.sim.world import LEASE_S, World
from threefs.cluster.manager_records import CHAIN
from threefs.kv.transaction import BufferedTransaction

KIND = "swoon"
_LASTS_S = (0.5 * LEASE_S, 2.5 * LEASE_S)


def begin(world: World, host: str) -> Callable[[], Any] | None:
    """How to wake it up; None where it does not run, or is to fall asleep already."""
    process, on_commit = world.processes[host], world.manager_kv.on_commit
    if not process.running or host in on_commit:
        return None

    def fall_asleep(attempt: BufferedTransaction) -> bool:
        if not any(key.startswith(CHAIN + b"|") for key in attempt.writes):
            return False
        world.tell(f"{host} falls asleep in a transaction")
        process.pause()
        return True

    on_commit[host] = fall_asleep

    def wake() -> None:
        on_commit.pop(host, None)
        process.resume()

    return wake


def draw(dice: SeededRandom, world: World, length_s: float) -> list[tuple[float, str, float]]:
    """Moments, hosts and times: up to three of a run."""
    hosts = world.manager_hosts
    return [
        (dice.uniform(0.1, 1.0) * length_s, hosts[dice.below(len(hosts))], dice.uniform(*_LASTS_S))
        for _ in range(1 + dice.below(3))
    ]
