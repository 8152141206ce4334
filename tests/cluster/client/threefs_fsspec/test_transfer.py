import io
import os
import random
import stat
from pathlib import Path

import pytest
from fsspec.callbacks import Callback
from threefs_fsspec import ThreefsFileSystem, transfer

SIZES = (0, 1, transfer.WHOLE_BYTES, transfer.WHOLE_BYTES + 1, 2 * transfer.PIECE_BYTES + 7)


@pytest.mark.parametrize("size", SIZES)
def test_a_file_goes_in_and_out_as_it_is(threefs: ThreefsFileSystem, place: str, tmp_path: Path, size: int) -> None:
    content = random.Random(size).randbytes(size)
    (tmp_path / "in").write_bytes(content)
    sent, received = Callback(), Callback()
    threefs.put_file(str(tmp_path / "in"), f"{place}/a", callback=sent)
    assert threefs.cat_file(f"{place}/a") == content
    threefs.get_file(f"{place}/a", str(tmp_path / "out"), callback=received)
    assert (tmp_path / "out").read_bytes() == content
    assert (sent.size, sent.value) == (received.size, received.value) == (size, size)
    memory = io.BytesIO()
    threefs.get_file(f"{place}/a", memory)
    assert memory.getvalue() == content
    with pytest.raises(FileExistsError):
        threefs.put_file(str(tmp_path / "in"), f"{place}/a", mode="create")
    (tmp_path / "in").write_bytes(b"other")
    threefs.put_file(str(tmp_path / "in"), f"{place}/a")
    assert threefs.cat_file(f"{place}/a") == b"other"


def test_a_tree_goes_in_and_out(threefs: ThreefsFileSystem, place: str, tmp_path: Path) -> None:
    (tmp_path / "in" / "deep" / "empty").mkdir(parents=True)
    for number in range(100):
        (tmp_path / "in" / "deep" / str(number)).write_text(str(number))
    threefs.put(str(tmp_path / "in"), f"{place}/tree", recursive=True)
    assert threefs.isdir(f"{place}/tree/deep/empty")
    threefs.get(f"{place}/tree", str(tmp_path / "out"), recursive=True)
    found = {path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*")}
    assert found == {path.relative_to(tmp_path / "in") for path in (tmp_path / "in").rglob("*")}
    assert (tmp_path / "out" / "deep" / "42").read_text() == "42"


def test_what_cannot_be_read_leaves_the_local_file(threefs: ThreefsFileSystem, place: str, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("precious")
    for name in ("kept", "new"):
        with pytest.raises(FileNotFoundError):
            threefs.get_file(f"{place}/none", str(tmp_path / name))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"] and (tmp_path / "kept").read_text() == "precious"


def test_an_error_halfway_leaves_the_local_file(threefs: ThreefsFileSystem, place: str, tmp_path: Path) -> None:
    """The old one was lost, and half of the new one lay under its name."""

    class Failing(Callback):
        def relative_update(self, inc: int = 1) -> None:
            raise InterruptedError

    threefs.pipe_file(f"{place}/a", bytes(2 * transfer.PIECE_BYTES))
    (tmp_path / "kept").write_text("precious")
    for name in ("kept", "new"):
        with pytest.raises(InterruptedError):
            threefs.get_file(f"{place}/a", str(tmp_path / name), callback=Failing())
    assert [path.name for path in tmp_path.iterdir()] == ["kept"] and (tmp_path / "kept").read_text() == "precious"


def test_the_local_file_keeps_its_permissions_and_the_links_to_it(
    threefs: ThreefsFileSystem, place: str, tmp_path: Path
) -> None:
    threefs.pipe_file(f"{place}/a", b"new")
    (tmp_path / "kept").write_text("old")
    (tmp_path / "kept").chmod(0o662)
    (tmp_path / "link").symlink_to("kept")
    threefs.get_file(f"{place}/a", str(tmp_path / "link"))
    assert (tmp_path / "link").is_symlink() and (tmp_path / "kept").read_text() == "new"
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o662
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    threefs.get_file(f"{place}/a", str(tmp_path / "pipe"))
    assert os.read(reader, 9) == b"new"
    os.close(reader)


def test_a_pipe_is_refused(threefs: ThreefsFileSystem, place: str, tmp_path: Path) -> None:
    """Nobody writes into it: a copy of the directory hung for ever."""
    (tmp_path / "tree").mkdir()
    os.mkfifo(tmp_path / "tree" / "pipe")
    with pytest.raises(OSError, match="neither a file nor a directory"):
        threefs.put(str(tmp_path / "tree"), place, recursive=True)
    with pytest.raises(OSError, match="neither a file nor a directory"):
        threefs.put_file(str(tmp_path / "tree" / "pipe"), f"{place}/pipe")
    assert not threefs.exists(f"{place}/pipe")
