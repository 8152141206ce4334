import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from threefs_cli import demo_command
from threefs_cli.demo.report import Report
from threefs_cli.main import main


@pytest.mark.parametrize("held", [True, False])
def test_the_measurements_are_shown_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str], held: bool) -> None:
    report = Report()
    report.loopback_bytes_per_s = 1 << 30
    report.begin("step").check("it holds", held)
    demo_command.show(report, tmp_path / "figures.json")
    assert json.loads((tmp_path / "figures.json").read_text())["ok"] is held
    printed = capsys.readouterr().out
    assert "raw loopback: 1.0 GiB/s" in printed
    assert ("NOT every check held." in printed) is not held
    assert ("BROKEN: it holds" in printed) is not held


def test_a_place_that_does_not_exist(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["demo", "--dir", str(tmp_path / "none")])
    assert result.exit_code == 2 and "none" in result.output
