"""The program's command line. What it does when it runs is tested in tests/cluster."""

import tomllib
from pathlib import Path

from click.testing import CliRunner
from threefs_meta.main import main
from threefs_meta.settings import Settings

from threefs import __version__
from threefs.settings import from_table


def test_bad_settings_end_it_with_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("nonsense = 1\n")
    result = CliRunner().invoke(main, ["--settings", str(file)])
    assert result.exit_code == 2
    assert "nonsense" in result.output


def test_help_says_what_it_prints() -> None:
    assert "ready ADDRESS" in CliRunner().invoke(main, ["--help"]).output


def test_the_version_and_an_example_are_printed() -> None:
    assert f"threefs-meta, version {__version__}" in CliRunner().invoke(main, ["--version"]).output
    shown = CliRunner().invoke(main, ["-h"]).output
    lines = [line for line in shown.splitlines() if " = " in line]
    from_table(Settings, tomllib.loads("\n".join(lines)), "the help")
