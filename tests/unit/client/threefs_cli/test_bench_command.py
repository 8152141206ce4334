from click.testing import CliRunner
from threefs_cli.main import main


def test_options_are_those_of_the_load_generator() -> None:
    result = CliRunner().invoke(main, ["bench", "--help"])
    assert result.exit_code == 0 and "--iodepth=" in result.output and "Examples" not in result.stderr
    result = CliRunner().invoke(main, ["bench", "--name=a", "--iodept=4"])
    assert result.exit_code == 2 and result.stderr == (
        "Error: there is no option 'iodept'; the nearest one is 'iodepth' (--help shows all)\n"
    )
