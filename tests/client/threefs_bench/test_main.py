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
