"""Disks that say something else than they do; and what is found where that goes wrong."""

from dataclasses import replace

import pytest

from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated import record_table
from tests.sim import run_shape
from tests.sim.faults import parse
from tests.sim.run import Outcome, run
from tests.sim.workload import Load
from tests.sim.world import LEASE_S, Size

_SIZE = Size(storage=3, targets_per_disk=1, clients=2)
_LARGE = Load(chunks=6, pause_s=0.05, moves_s=0.3, large=0.9, files_pause_s=0.2)


def played(scenario: str) -> Outcome:
    outcome = run(2, size=_SIZE, load=_LARGE, scenario=parse(scenario))
    assert not outcome.violations, outcome.violations
    return outcome


@pytest.mark.parametrize("host", ["s1", "s2", "s3"])
@pytest.mark.parametrize("what", ["quota", "scant"])
def test_writes_go_on_while_a_disk_refuses_them_although_it_says_that_it_has_room(what: str, host: str) -> None:
    outcome = played(f"1.0 {what} {host} 20.0\n20.0 cut s1 c1")
    assert outcome.faults[what] and outcome.longest["write"] < LEASE_S / 4, outcome.longest


@pytest.mark.parametrize("host", ["s1", "s2", "s3"])
def test_a_disk_that_says_nothing_has_failed(host: str) -> None:
    outcome = played(f"1.0 mute {host} 8.0\n10.0 cut s1 c1")
    assert outcome.faults["mute"] and outcome.longest["write"] < LEASE_S / 2, outcome.longest


@pytest.mark.parametrize("seed", [5, 9])
def test_tables_that_lost_changes_are_opened_anew_also_where_no_other_target_serves(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_table, "_LOST", 1.0)
    scenario = parse("1.0 full s1 3.0\n1.2 full s2 3.0\n1.1 full s3 3.0\n6.0 cut s1 c1")
    outcome = run(seed, size=replace(_SIZE, full_found_late=0.5), load=_LARGE, scenario=scenario, logs=True)
    assert not outcome.violations, outcome.violations
    assert sum("had more changes before the disk was full" in line for line in outcome.trace) > 1


def test_some_seeds_have_these_faults() -> None:
    drawn = [run_shape.draw(SeededRandom(seed, "run"), seed) for seed in range(1, 200)]
    assert sum(load.strange_disks for _, load in drawn) > 10
