"""Disks that stay small until the files that fill them are removed; and what is found where no removal makes room."""

import pytest
from threefs_storage.chain import resync

from tests.harness.seeded_random import SeededRandom
from tests.sim import run_shape, small_disks
from tests.sim.faults import parse
from tests.sim.run import Outcome, run
from tests.sim.scenarios import play
from tests.sim.workload import Load
from tests.sim.world import Size

_SIZE = Size(storage=3, targets_per_disk=1, clients=2, ballast_bytes=small_disks.BALLAST_BYTES)
_LOAD = Load(chunks=2, pause_s=0.1, files_pause_s=0.2)


def played(scenario: str) -> Outcome:
    return run(2, size=_SIZE, load=_LOAD, scenario=parse(scenario))


def said(outcome: Outcome, text: str) -> bool:
    return any(text in line for line in outcome.trace)


@pytest.mark.parametrize("host", ["s1", "s2", "s3"])
def test_a_target_returns_when_files_are_removed_that_fill_its_disk(host: str) -> None:
    outcome = played(f"1.0 small {host} 10.0\n12.0 cut s1 c1")
    assert not outcome.violations, outcome.violations
    assert said(outcome, f"-- the files that filled the disk of {host} are removed")


def test_a_user_who_is_told_that_there_is_no_room_removes_files() -> None:
    outcome = played("1.0 small s1 10.0\n1.1 small s2 10.0\n1.2 small s3 10.0\n12.0 cut s1 c1")
    assert not outcome.violations, outcome.violations
    assert said(outcome, "-- the files that filled the disk of s1 are removed")


def test_a_target_without_room_hears_of_all_removals_before_it_gets_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """The removed chunks lie on later pages of the inventory than chunks that are new."""
    monkeypatch.setattr(resync, "MAX_ROWS", 4)
    new = "\n".join(f"on {number}\nwrite c1 x*65536" for number in range(1, 40))
    play(f"world ballast_bytes=1048576\nwrite c1 old\nthen\nat 0 do small tail 6\nwait 3\n{new}\nthen\nwait 6\nwell")


def test_removals_reach_a_target_without_room_although_its_chain_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes some chunks first, so that nothing is left. A write came before the first removal, and it left again."""
    monkeypatch.setattr(resync, "_LITTLE_ROOM_BYTES", 1)
    outcome = played("1.0 small s1 10.0\n12.0 cut s1 c1")
    assert not outcome.violations, outcome.violations


def test_some_seeds_have_these_disks() -> None:
    drawn = [run_shape.draw(SeededRandom(seed, "run"), seed) for seed in range(1, 200)]
    assert sum(load.small_disks for _, load in drawn) > 10
