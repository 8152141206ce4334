"""Machines that have no memory for some buffers of their processes."""

from tests.harness.seeded_random import SeededRandom
from tests.sim import run_shape
from tests.sim.faults import parse
from tests.sim.run import run
from tests.sim.workload import Load
from tests.sim.world import Size


def test_calls_without_memory_leave_nothing_behind() -> None:
    load = Load(chunks=3, pause_s=0.05, large=0.5, files_pause_s=0.2)
    steps = parse("1.0 scarce s1 4.0\n1.5 scarce s2 4.0\n2.0 scarce s3 4.0\n2.0 scarce t1 4.0\n7.0 cut s1 c1")
    outcome = run(2, size=Size(storage=3, targets_per_disk=1, clients=2), load=load, scenario=steps)
    assert not outcome.violations, outcome.violations
    assert outcome.faults["scarce"] == 4 and outcome.reached["memory"] > 10


def test_some_seeds_have_these_faults() -> None:
    drawn = [run_shape.draw(SeededRandom(seed, "run"), seed) for seed in range(1, 200)]
    assert sum(load.scarce_memory for _, load in drawn) > 10
