import pytest
from threefs_manager.remarks import MAX_BACKUPS, MAX_REFUSALS, Remarks

from tests.harness.clocks import SteppedClock
from threefs.errors import InvalidArgument
from threefs.wire import manager_pb2 as pb


def report(name: str = "b") -> pb.ReportBackupRequest:
    stores = [pb.BackedUpStore(store="meta", complete=True, behind_ms=1200)]
    return pb.ReportBackupRequest(name=name, stores=stores, report_interval_ms=5000)


def test_the_last_report_of_each_backup_is_kept_with_its_age() -> None:
    clock = SteppedClock()
    remarks = Remarks(clock)
    remarks.on_backup(report())
    clock.advance(3.0)
    remarks.on_backup(report("other"))
    clock.advance(2.0)
    found = list(remarks.backups())
    assert [(one.name, one.silent_ms) for one in found] == [("b", 5000), ("other", 2000)]
    assert found[0].stores[0].behind_ms == 1200 and found[0].report_interval_ms == 5000
    remarks.on_backup(report())
    assert {one.name: one.silent_ms for one in remarks.backups()} == {"b": 0, "other": 2000}
    clock.advance(8 * 86_400)
    assert list(remarks.backups()) == []


def test_what_is_kept_is_bounded() -> None:
    remarks = Remarks(SteppedClock())
    for number in range(MAX_BACKUPS + 5):
        remarks.on_backup(report(f"b{number}"))
    for number in range(MAX_REFUSALS + 5):
        remarks.on_refusal(f"host:{number}", "x" * 5000)
    assert len(list(remarks.backups())) == MAX_BACKUPS
    refusals = list(remarks.refusals())
    assert len(refusals) == MAX_REFUSALS and max(len(one.reason) for one in refusals) == 1024
    for bad in (report(""), report("x" * 2000), pb.ReportBackupRequest(name="b", stores=[pb.BackedUpStore()] * 5)):
        with pytest.raises(InvalidArgument, match="a backup has a name"):
            remarks.on_backup(bad)


def test_a_refusal_ends_with_an_admission_from_there_or_after_a_while() -> None:
    clock = SteppedClock()
    remarks = Remarks(clock)
    remarks.on_refusal("host:1", "an older copy")
    remarks.on_refusal("host:2", "an older copy")
    clock.advance(60.0)
    remarks.on_admission("host:1")
    remarks.on_admission("host:3")
    assert [(one.address, one.ago_ms) for one in remarks.refusals()] == [("host:2", 60_000)]
    clock.advance(3600.0)
    assert list(remarks.refusals()) == []
