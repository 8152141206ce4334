from click.testing import CliRunner
from threefs_mount.main import main


def test_a_cluster_that_is_not_there_is_an_error(tmp_path_factory: object) -> None:
    result = CliRunner().invoke(main, ["--address", "no address", "/mnt"])
    assert result.exit_code == 1
    assert "no address" in str(result.exception) or "fuse" in str(result.exception)
