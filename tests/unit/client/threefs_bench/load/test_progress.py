import pytest
from rich.console import Console
from threefs_bench.load import progress
from threefs_bench.load.progress import Rates
from threefs_bench.load.runner import Snapshot

from threefs.errors import InvalidArgument


def test_rates_are_those_since_the_last_line() -> None:
    rates = Rates()
    assert rates.line(Snapshot(prepared=5000), 100.0) == "1/1 prepare: 5,000 bytes or names are prepared"
    first = Snapshot(state="run", fraction=0.25, counts={"read": [100, 100 << 20], "write": [10, 10 << 20]})
    assert rates.line(first, 101.0) == "1/1 run, r=100.0MiB/s 100 IOPS, w=10.0MiB/s 10 IOPS, eta 3 s"
    second = Snapshot(state="run", fraction=0.5, counts={"read": [300, 300 << 20], "write": [10, 10 << 20]})
    assert rates.line(second, 102.0) == "1/1 run, r=200.0MiB/s 200 IOPS, eta 2 s"
    names = Snapshot(phase=1, phases=2, state="run", counts={"stat": [50, 0], "create": [5, 0]})
    assert rates.line(names, 103.0).startswith("2/2 run, r=")


@pytest.mark.parametrize(
    ("eta", "terminal", "shown"),
    [("auto", True, True), ("auto", False, False), ("always", False, True), ("never", True, False)],
)
def test_when_it_is_shown(eta: str, terminal: bool, shown: bool) -> None:
    assert progress.wanted(eta, Console(force_terminal=terminal)) is shown


def test_other_words_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="none of always, auto, never"), progress.shown("sometimes"):
        raise AssertionError("it is not entered")


def test_a_pipe_gets_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.shown("always") as show:
        show(Snapshot(state="run", fraction=0.5, counts={"read": [1, 4096]}))
    assert "[ 50%] 1/1 run" in capsys.readouterr().err
    with progress.shown("auto") as show:
        show(Snapshot())
    assert capsys.readouterr().err == ""
