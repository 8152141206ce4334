import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from threefs_bench.main import main


def test_help_says_what_is_measured() -> None:
    result = CliRunner().invoke(main, ["smoke", "--help"])
    assert result.exit_code == 0
    assert "raw sockets" in result.output and "Example" in result.output


def test_no_cluster_is_one_clear_line() -> None:
    result = CliRunner().invoke(main, ["smoke", "--address", "not an address"])
    assert result.exit_code == 1
    assert result.output.startswith("Error: ") and result.output.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["smoke", "--rounds", "0"],
        ["smoke", "--disk", "/nowhere"],
        ["smoke", "--json", "/nowhere/x"],
        ["engines", "--engine", "rocks:///nowhere/kv", "--seconds", "0"],
        ["engines", "--engine", "rocks:///nowhere/kv", "--json", "/nowhere/x"],
        ["mount", "/", "--files", "0"],
    ],
)
def test_what_cannot_be_measured_or_written_is_refused_before_the_run(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2 and "Error: Invalid value for" in result.output


def test_engines_are_measured_by_url(tmp_path: Path) -> None:
    url, file = f"rocks://{tmp_path}/kv", tmp_path / "rates.json"
    result = CliRunner().invoke(main, ["engines", "--engine", url, "--seconds", "0.2", "--json", str(file)])
    assert result.exit_code == 0, result.output
    assert {row["engine"] for row in json.loads(file.read_text())} == {url}
    result = CliRunner().invoke(main, ["engines", "--engine", "sqlite://x"])
    assert result.exit_code == 1 and "not sqlite://..." in result.output
    result = CliRunner().invoke(main, ["engines", "--engine", f"rocks://{file}"])
    assert result.exit_code == 1 and result.output.startswith("Error: ") and "File exists" in result.output
