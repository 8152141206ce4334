import tomllib

from click.testing import CliRunner
from threefs_manager.main import main
from threefs_manager.settings import Settings

from threefs import __version__
from threefs.settings import from_table


def test_the_help_says_what_it_prints() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0 and "ready ADDRESS CONTROL_ADDRESS" in result.output


def test_the_settings_file_must_be_given_and_be_there() -> None:
    assert CliRunner().invoke(main, []).exit_code == 2
    result = CliRunner().invoke(main, ["--settings", "/nonexistent/manager.toml"])
    assert result.exit_code == 2 and "/nonexistent/manager.toml does not exist" in result.output


def test_the_version_and_an_example_are_printed() -> None:
    assert f"threefs-manager, version {__version__}" in CliRunner().invoke(main, ["--version"]).output
    shown = CliRunner().invoke(main, ["-h"]).output
    lines = [line for line in shown.splitlines() if " = " in line]
    from_table(Settings, tomllib.loads("\n".join(lines)), "the help")
