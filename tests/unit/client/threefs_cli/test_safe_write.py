import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from threefs_cli.safe_write import SafeWriter

from threefs.errors import NotADirectory


@pytest.fixture
def writer(tmp_path: Path) -> SafeWriter:
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "victim").write_text("precious")
    return SafeWriter(str(tmp_path / "out"))


@pytest.fixture(autouse=True)
def mask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


def write(writer: SafeWriter, path: Path, content: bytes = b"new", mode: int = 0o644) -> None:
    with writer.new_file(str(path), mode) as file:
        os.write(file, content)


def test_permissions_are_those_of_the_file_less_the_umask(writer: SafeWriter, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for mode, wanted in ((0o644, 0o640), (0o6777, 0o750), (0o4711, 0o710), (0o600, 0o600)):
        write(writer, out / "file", mode=mode)
        assert stat.S_IMODE((out / "file").stat().st_mode) == wanted


def test_a_link_that_is_in_the_way_is_replaced_and_not_followed(writer: SafeWriter, tmp_path: Path) -> None:
    out, victim = tmp_path / "out", tmp_path / "elsewhere" / "victim"
    (out / "file").symlink_to(victim)
    write(writer, out / "file")
    assert victim.read_text() == "precious" and (out / "file").read_text() == "new" and not (out / "file").is_symlink()
    writer.make_symlink("anywhere", str(out / "file"))
    writer.make_symlink(str(victim), str(out / "file"))
    assert (out / "file").readlink() == victim and sorted(os.listdir(out)) == ["file"]


def test_no_directory_is_reached_through_a_link(writer: SafeWriter, tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    writer.make_directory(str(out / "a"), 0o755)
    writer.make_directory(str(out / "a" / "b"), 0o755)
    writer.make_directory(str(out / "a" / "b"), 0o755)
    (out / "a" / "link").symlink_to(elsewhere)
    attempts: list[Callable[[], object]] = [
        lambda: writer.make_directory(str(out / "a" / "link"), 0o755),
        lambda: writer.make_directory(str(out / "a" / "link" / "deep"), 0o755),
        lambda: write(writer, out / "a" / "link" / "victim"),
        lambda: writer.make_symlink("x", str(out / "a" / "link" / "victim")),
    ]
    for work in attempts:
        with pytest.raises(NotADirectory, match="symbolic link, and nothing is written through it"):
            work()
    assert os.listdir(elsewhere) == ["victim"] and (elsewhere / "victim").read_text() == "precious"
    (out / "file").write_text("x")
    with pytest.raises(NotADirectory, match="file is a file"):
        writer.make_directory(str(out / "file"), 0o755)


def test_the_user_may_name_the_destination_through_a_link(writer: SafeWriter, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "out")
    write(SafeWriter(str(tmp_path / "link")), tmp_path / "link" / "file")
    assert (tmp_path / "out" / "file").read_text() == "new"


def test_a_failure_leaves_what_was_there_and_nothing_else(writer: SafeWriter, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "file").write_text("old")
    with pytest.raises(RuntimeError), writer.new_file(str(out / "file"), 0o600) as file:
        os.write(file, b"half of it")
        assert (out / "file").read_text() == "old"
        raise RuntimeError
    assert (out / "file").read_text() == "old" and os.listdir(out) == ["file"]
    (out / "directory").mkdir()
    with pytest.raises(IsADirectoryError, match=f"{out}/directory"):
        write(writer, out / "directory")
    with pytest.raises(IsADirectoryError):
        writer.make_symlink("x", str(out / "directory"))
    assert sorted(os.listdir(out)) == ["directory", "file"]


@pytest.mark.parametrize("path", ["/proc/x", "/proc/sys/x", "/proc/none/x"])
def test_errors_name_the_file_that_the_user_has_named(path: str) -> None:
    """Nobody knows the temporary name, and the last name alone does not say where."""
    writer = SafeWriter("/proc")
    attempts: list[Callable[[], object]] = [
        lambda: write(writer, Path(path)),
        lambda: writer.make_symlink("target", path),
        lambda: writer.make_directory(path, 0o755),
    ]
    for work in attempts:
        with pytest.raises(OSError) as failure:
            work()
        assert (failure.value.filename, failure.value.filename2) == (path, None)


def test_a_pipe_is_written_to_only_if_it_was_named_in_full(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    for name in ("pipe", "link"):
        write(SafeWriter(str(tmp_path), special_files=True), tmp_path / name)
        assert os.read(reader, 10) == b"new"
    write(SafeWriter(str(tmp_path)), tmp_path / "link")
    assert (tmp_path / "link").read_text() == "new" and stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    os.close(reader)
