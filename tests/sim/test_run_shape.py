import dataclasses

from tests.harness.seeded_random import SeededRandom
from tests.sim import run_shape
from tests.sim.run_shape import DENSE, USUAL, Shares

_SEEDS = range(1, 300)


def count(shares: Shares) -> int:
    """Of what is drawn apart, in all these runs."""
    drawn = [run_shape.draw(SeededRandom(seed, "run"), seed, shares) for seed in _SEEDS]
    loads = (
        "holds",
        "absences",
        "brims",
        "restores",
        "strange_disks",
        "swoons",
        "small_disks",
        "scarce_memory",
        "losses",
    )
    sizes = ("tuned", "spares", "full_found_late", "stall_s", "manager_doubt")
    of_loads = sum(bool(getattr(load, each)) for _, load in drawn for each in loads)
    return of_loads + sum(bool(getattr(size, each)) for size, _ in drawn for each in sizes)


def test_dense_runs_have_most_kinds_of_faults() -> None:
    usual, dense = count(USUAL), count(DENSE)
    assert dense > 2.5 * usual and dense / len(_SEEDS) > 5


def test_shares_are_shares() -> None:
    assert all(0.0 < share <= 1.0 for shares in (USUAL, DENSE) for share in dataclasses.astuple(shares))
