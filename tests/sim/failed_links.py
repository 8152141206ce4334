"""Links between two storage processes that fail while both reach everybody else: drawn apart, so that they change
nothing else of a seed.

In part of the runs one link fails, both ways, one way, or for what is large, for long enough that a target is put out
of its chains for it; in some of these it fails again soon after.
"""

from collections.abc import Sequence

from tests.harness.seeded_random import SeededRandom
from tests.sim.world import LEASE_S

_SHARE = 0.2
_AGAIN = 0.5
_KINDS = ("link", "half", "narrow")
_LASTS_S = (2.5 * LEASE_S, 5 * LEASE_S)
_PAUSE_S = (0.2, 2 * LEASE_S)


def draw(
    dice: SeededRandom, storage_hosts: Sequence[str], length_s: float
) -> list[tuple[float, str, tuple[str, str], float]]:
    """When, what, between which hosts and for how long."""
    if not dice.chance(_SHARE):
        return []
    hosts = list(storage_hosts)
    one = hosts.pop(dice.below(len(hosts)))
    other = hosts[dice.below(len(hosts))]
    steps = []
    at = dice.uniform(0.0, length_s / 2)
    for _ in range(1 + dice.chance(_AGAIN)):
        lasts = dice.uniform(*_LASTS_S)
        steps.append((at, _KINDS[dice.below(len(_KINDS))], (one, other), lasts))
        at += lasts + dice.uniform(*_PAUSE_S)
    return steps
