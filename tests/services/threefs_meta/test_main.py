"""The program's command line. What it does when it runs is tested in tests/cluster."""

from pathlib import Path

from click.testing import CliRunner
from threefs_meta.main import main


def test_bad_settings_end_it_with_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("nonsense = 1\n")
    result = CliRunner().invoke(main, ["--settings", str(file)])
    assert result.exit_code == 2
    assert "nonsense" in result.output


def test_help_says_what_it_prints() -> None:
    assert "ready ADDRESS" in CliRunner().invoke(main, ["--help"]).output
