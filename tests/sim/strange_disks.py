"""Disks that say something else than they do.

AT quota HOST FOR     its disk takes nothing that needs room, though it says that it has some
AT scant HOST FOR     the same, but it takes some records, and no blocks
AT mute HOST FOR      its disk does not say any more what it has; later the process is killed, and started again with
                      the disk working
"""

from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.content import UNIT_BYTES
from tests.sim.world import LEASE_S, World

KINDS = ("quota", "scant", "mute")
SCANT_BYTES = UNIT_BYTES - 1
_LASTS_S = (0.2, 2 * LEASE_S)


def draw(dice: SeededRandom, world: World, length_s: float) -> list[tuple[float, str, str, float]]:
    """Moments, kinds, hosts and times: one to three of a run."""
    hosts = world.storage_hosts
    return [
        (
            dice.uniform(0.0, 1.0) * length_s,
            KINDS[dice.below(len(KINDS))],
            hosts[dice.below(len(hosts))],
            dice.uniform(*_LASTS_S),
        )
        for _ in range(1 + dice.below(3))
    ]
