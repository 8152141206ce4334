"""Managers that fall asleep in their transactions."""

from tests.harness.seeded_random import SeededRandom
from tests.sim import run_shape
from tests.sim.faults import parse
from tests.sim.run import run
from tests.sim.workload import Load
from tests.sim.world import Size

_SIZE = Size(managers=1, storage=3, targets_per_disk=1, clients=2)


def test_r9_a_silence_while_the_manager_was_suspended_in_a_transaction_says_nothing() -> None:
    steps = parse("2.9 swoon m1 6.0\n3.0 kill s3 8.5\n9.0 cut s1 c1")
    outcome = run(2, size=_SIZE, load=Load(chunks=2), scenario=steps, logs=True)
    assert not outcome.violations, outcome.violations
    assert any("m1 falls asleep in a transaction" in line for line in outcome.trace)
    changes = [line for line in outcome.trace if "chain changed" in line]
    assert changes and not [line for line in changes if "101:serving 201:serving" not in line], "\n".join(changes)


def test_some_seeds_have_these_faults() -> None:
    drawn = [run_shape.draw(SeededRandom(seed, "run"), seed) for seed in range(1, 200)]
    assert sum(load.swoons for _, load in drawn) > 10
