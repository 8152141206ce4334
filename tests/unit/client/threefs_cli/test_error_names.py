from pathlib import Path

import pytest
from click.testing import CliRunner
from threefs_cli.error_names import with_filename
from threefs_cli.main import main
from threefs_cli.safe_write import SafeWriter

from threefs.errors import NotFound

FULL = "/dev/full"  # every write to it meets a full disk


def test_a_full_disk_is_named() -> None:
    with (
        pytest.raises(OSError, match="No space left on device: '/back/a'"),
        with_filename("/back/a"),
        open(FULL, "w") as file,
    ):
        file.write("x")


def test_what_has_a_name_keeps_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"/none'$"), with_filename("/back/a"):
        (tmp_path / "none").read_text()
    with pytest.raises(NotFound, match=r"^/data: gone$"), with_filename("/back/a"):
        raise NotFound("/data: gone")


def test_a_file_that_lands_on_a_full_disk(tmp_path: Path) -> None:
    writer = SafeWriter(str(tmp_path))
    with pytest.raises(OSError, match=r"/back'$"), writer.new_file(str(tmp_path / "back"), 0o600):
        Path(FULL).write_text("x")
    assert not list(tmp_path.iterdir())


def test_a_command_says_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(file: Path) -> None:
        with open(FULL, "w") as out:
            out.write("x")

    monkeypatch.setattr("threefs.cluster_key.make", full)
    done = CliRunner().invoke(main, ["key", str(tmp_path / "key")])
    assert (done.exit_code, done.output) == (1, f"Error: {tmp_path / 'key'}: No space left on device\n")
