"""What is told of damaged records. What goes on beside them: tests/contract/test_damaged_records.py."""

from structlog.testing import capture_logs

from threefs.errors import Corrupt
from threefs.telemetry.damaged_records import DamagedRecords


def test_each_record_is_told_of_once_for_each_effect() -> None:
    damaged = DamagedRecords("look at it")
    with capture_logs() as logs:
        for effect in ("it stays", "it stays", "it goes"):
            damaged.pass_over(b"key", Corrupt("not its checksum"), effect)
    assert [(line["event"], line["key"], line["error"], line["hint"]) for line in logs] == [
        (effect, b"key".hex(), "not its checksum", "look at it") for effect in ("it stays", "it goes")
    ]
