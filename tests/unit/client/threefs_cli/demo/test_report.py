import pytest
from rich.console import Console
from threefs_cli.demo.report import Report

from tests.harness.clocks import SteppedClock


def test_ok_needs_a_step_and_a_check_in_every_one() -> None:
    report = Report()
    assert not report.ok
    first, second = report.begin("first"), report.begin("second")
    first.check("a", True)
    assert not report.ok  # nothing was checked in the second
    second.check("b", True)
    assert report.ok
    second.check("c", False)
    assert not report.ok


def test_throughput_stands_beside_the_loopback() -> None:
    report = Report(SteppedClock(step_s=1.0))
    report.loopback_bytes_per_s = 1000.0
    step = report.begin("copy")
    for _ in range(2):
        with report.timed(step):
            pass
    step.length_bytes = 500
    assert (step.seconds, step.bytes_per_s, report.over_loopback(step)) == (2.0, 250.0, 0.25)
    (row,) = report.as_json()["steps"]
    assert (row["name"], row["bytes_per_s"], row["over_raw_loopback"]) == ("copy", 250, 0.25)


def test_a_step_that_fails_is_still_timed() -> None:
    report = Report(SteppedClock(step_s=1.0))
    step = report.begin("copy")
    with pytest.raises(ZeroDivisionError), report.timed(step):
        _ = 1 / 0
    assert step.seconds == 1.0


def test_the_table_names_what_broke() -> None:
    report = Report()
    report.begin("one").check("held", True)
    report.begin("two").check("bit for bit", False)
    report.begin("three")
    console = Console(width=200)
    with console.capture() as captured:
        console.print(report.as_table())
    assert "BROKEN: bit for bit" in captured.get() and "BROKEN: nothing checked" in captured.get()
