import subprocess
import sys
from pathlib import Path

import pytest

from threefs.env import unwritten_output


def test_what_can_be_written_is_written(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as stream:
        stream.write("a line\n")
        unwritten_output.give_up(stream)
        assert (tmp_path / "out").read_text() == "a line\n"


def test_a_stream_that_takes_nothing_is_written_to_no_more() -> None:
    with Path("/dev/full").open("w") as stream:
        stream.write("a line\n")
        unwritten_output.give_up(stream)
        stream.write("another line\n")
        stream.flush()


@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-"])
@pytest.mark.parametrize("module", ["threefs_storage", "threefs_manager", "threefs_meta"])
def test_a_service_with_bad_settings_ends_with_its_exit_code_though_it_cannot_say_why(
    module: str, stderr: str, tmp_path: Path
) -> None:
    (tmp_path / "settings.toml").write_text("nonsense = 1\n")
    command = f'"$0" -m {module} --settings settings.toml {stderr}'
    ended = subprocess.run(["sh", "-c", command, sys.executable], cwd=tmp_path, stdout=subprocess.PIPE)
    assert (ended.returncode, ended.stdout) == (2, b"")
