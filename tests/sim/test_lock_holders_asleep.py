"""Locks of clients that sleep for longer than their lease (I18)."""

import pytest
from threefs_client.data.handles import Handle
from threefs_client.metadata.locks import LockOwner
from threefs_storage.engine.record_store import RecordStore

from tests.sim.faults import parse
from tests.sim.run import Outcome, run
from tests.sim.workload import Load
from tests.sim.world import Size

_SCENARIO = "1.0 doze f2 24.0\n2.0 doze f3 22.0\n28.0 cut s1 c1"


def played(seed: int) -> Outcome:
    load = Load(chunks=1, pause_s=1.0, files_pause_s=0.1)
    size = Size(storage=3, targets_per_disk=1, clients=2, lockers=3)
    return run(seed, size=size, load=load, scenario=parse(_SCENARIO), logs=True)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_lock_that_was_slept_away_is_lost_and_the_others_go_on(seed: int) -> None:
    outcome = played(seed)
    assert not outcome.violations, outcome.violations
    assert outcome.faults == {"doze": 2, "cut": 1}
    assert any("a client is silent" in line for line in outcome.trace)


def test_bytes_that_come_late_are_found_if_no_fence_stops_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordStore, "_update_fence", lambda self, inode, record: None)
    assert _some_seed_complains()


def test_a_client_that_does_not_know_that_its_lock_is_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordStore, "_update_fence", lambda self, inode, record: None)
    monkeypatch.setattr(LockOwner, "is_lost", False)
    monkeypatch.setattr(Handle, "check_writable", lambda self, offset, length: None)
    assert _some_seed_complains()


def _some_seed_complains() -> bool:
    return any("I18" in violation for seed in range(1, 9) for violation in played(seed).violations)


def test_a_host_that_does_not_run_does_not_fall_asleep() -> None:
    outcome = run(3, size=Size(), load=Load(), scenario=parse("1.0 doze f2 1.0"))
    assert not outcome.violations and outcome.faults == {}
