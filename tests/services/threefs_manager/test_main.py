from click.testing import CliRunner
from threefs_manager.main import main


def test_the_help_says_what_it_prints() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0 and "ready ADDRESS CONTROL_ADDRESS" in result.output


def test_the_settings_file_must_be_given_and_be_there() -> None:
    assert CliRunner().invoke(main, []).exit_code == 2
    result = CliRunner().invoke(main, ["--settings", "/nonexistent/manager.toml"])
    assert result.exit_code == 2 and "/nonexistent/manager.toml does not exist" in result.output
