"""`test_cluster_health.py` produces each reason."""

from tests.harness.cluster_status import found_in, sound
from threefs.wire import manager_pb2 as pb


def test_a_backup_that_is_up_to_date_is_no_reason() -> None:
    status = sound()
    store = pb.BackedUpStore(store="meta", complete=True, behind_ms=10_000)
    backup = status.backups.add(name="b", stores=[store], report_interval_ms=5000, silent_ms=30_000)
    assert found_in(status) == []
    backup.silent_ms = 30_001
    assert [reason.code for reason in found_in(status)] == ["backup_silent"]
    backup.report_interval_ms = 0  # it has ended, as it should
    assert found_in(status) == []
    backup.report_interval_ms = 60_000  # it comes more rarely, and is not late yet
    backup.silent_ms = 179_000
    assert found_in(status) == []


def test_clocks_that_differ_as_sound_ones_do_are_no_reason() -> None:
    status = sound()
    for row in status.nodes:
        row.clock_ppm = 9_999
    assert found_in(status) == []
    status.nodes[0].clock_ppm, status.nodes[0].alive = 50_000, False
    assert "clock_rate" not in {reason.code for reason in found_in(status)}
