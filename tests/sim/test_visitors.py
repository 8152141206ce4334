"""The bounds of a storage process for all peers together are reached, and no call is lost for it."""

from tests.harness.seeded_random import SeededRandom
from tests.sim import run_shape
from tests.sim.faults import parse
from tests.sim.run import run
from tests.sim.workload import Load
from tests.sim.world import Size

_STEPS = """
0.5 visitors s1 2.5
1.0 visitors s2 2.0
1.2 visitors t1 2.0
1.5 cut c1 s1
1.6 cut s2 s3
2.0 kill s2 1.0
2.5 visitors s3 2.0
3.0 cut c2 s3
3.5 visitors s1 1.5
4.0 kill c1 0.5
"""
_SIZE = Size(storage=3, clients=3, connections=48, process_bytes=1 << 20, calls_bytes=8 << 10)


def test_bounds_are_reached_and_nothing_is_lost() -> None:
    load = Load(chunks=3, pause_s=0.05, files_pause_s=0.05, large=0.8, rows=0.6, watchers=16, watch_pause_s=0.1)
    outcome = run(3, size=_SIZE, load=load, scenario=parse(_STEPS))
    assert not outcome.violations, outcome.violations
    assert all(outcome.reached.get(bound, 0) > 5 for bound in ("connections", "make_room", "check_calls")), (
        outcome.reached
    )
    assert outcome.reached.get("meta check_calls", 0) > 1, outcome.reached


def test_some_seeds_reach_the_bounds() -> None:
    drawn = [run_shape.draw(SeededRandom(seed, "run"), seed) for seed in range(1, 200)]
    visited = sum(load.visitors for _, load in drawn)
    granted = sum(size.receive_senders < 32 for size, _ in drawn)
    assert visited > 5 and granted > 5
