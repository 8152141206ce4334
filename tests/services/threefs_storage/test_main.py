"""The program `threefs-storage`; as a process it is tested with its manager, in tests/cluster."""

from pathlib import Path

from click.testing import CliRunner
from threefs_storage.main import main


def test_the_help_says_what_it_prints() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0 and "ready ADDRESS" in result.output


def test_the_settings_file_must_be_given_and_be_there(tmp_path: Path) -> None:
    assert CliRunner().invoke(main, []).exit_code == 2
    result = CliRunner().invoke(main, ["--settings", str(tmp_path / "storage.toml")])
    assert result.exit_code == 2 and "storage.toml does not exist" in result.output
