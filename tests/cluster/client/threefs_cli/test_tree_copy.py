import os
from pathlib import Path

import pytest
from threefs_cli import tree_copy
from threefs_cli.local_tree import LocalTree
from threefs_cli.remote_tree import RemoteTree
from threefs_cli.tree_copy import SMALL_BYTES
from threefs_client import AsyncFileSystem, FileSystem

from threefs.errors import InvalidArgument


def test_into_a_directory_or_under_a_new_name() -> None:
    assert tree_copy.destinations(("a/b/",), "/d", into=True) == [("a/b/", "/d/b")]
    assert tree_copy.destinations(("a/b",), "/d", into=False) == [("a/b", "/d")]
    assert tree_copy.destinations(("x", "y"), "/", into=True) == [("x", "/x"), ("y", "/y")]
    with pytest.raises(InvalidArgument, match="not a directory"):
        tree_copy.destinations(("x", "y"), "/d", into=False)
    with pytest.raises(InvalidArgument, match="no name"):
        tree_copy.destinations((".",), "/d", into=True)


def test_there_and_back_again(fs: FileSystem, tmp_path: Path) -> None:
    source, back = tmp_path / "source", tmp_path / "back"
    (source / "deep" / "er").mkdir(parents=True)
    contents = {
        "empty": b"",
        "deep/small": b"small",
        "deep/er/chunk": os.urandom(1 << 20),
        "deep/er/medium": os.urandom((3 << 20) + 17),
        "large": os.urandom(tree_copy.PIECE_BYTES * 2 + 4097),
        "deep/ünïcode \n": b"odd name",
    }
    for name, content in contents.items():
        (source / name).write_bytes(content)
    (source / "large").chmod(0o640)
    (source / "link").symlink_to("deep/small")
    remote = AsyncFileSystem(fs._context())
    moved: list[tuple[int, int]] = []

    def count_progress(files: int, size: int) -> None:
        moved.append((files, size))

    for _ in range(2):  # the second time over what is there
        tree = LocalTree()
        tree.add(str(source), "/copying", recursive=True)
        moved.clear()
        fs._run(tree_copy.put(remote, tree, count_progress))
        assert sum(files for files, _ in moved) == len(contents) + 1
        assert sum(size for _, size in moved) == tree.length_bytes
        found = RemoteTree()
        fs._run(found.add(remote, "/copying", str(back), recursive=True))
        moved.clear()
        fs._run(tree_copy.get(remote, found, count_progress))
        assert sum(files for files, _ in moved) == len(contents) + 1
        assert sum(size for _, size in moved) == tree.length_bytes
    for name, content in contents.items():
        assert (back / name).read_bytes() == content, name
    assert (back / "large").stat().st_mode & 0o777 == 0o640
    assert os.readlink(back / "link") == "deep/small"
    assert sorted(os.listdir(back / "deep")) == sorted(os.listdir(source / "deep"))


@pytest.mark.parametrize("ends_in_hole", [False, True])
def test_holes_stay_holes(fs: FileSystem, tmp_path: Path, ends_in_hole: bool) -> None:
    piece, name = tree_copy.PIECE_BYTES, f"sparse-{ends_in_hole}"
    source, back = tmp_path / "source", tmp_path / "back"
    with open(source, "wb") as file:
        os.pwrite(file.fileno(), b"first", 2 * piece + 5)
        os.pwrite(file.fileno(), b"last", 5 * piece)
        if ends_in_hole:
            file.truncate(9 * piece + 77)
    remote = AsyncFileSystem(fs._context())
    moved: list[int] = []
    tree = LocalTree()
    tree.add(str(source), f"/{name}", recursive=False)
    fs._run(tree_copy.put(remote, tree, lambda files, size: moved.append(size)))
    with fs.open(f"/{name}") as copy:
        assert copy.seek_data(0) >= 2 * piece and copy.seek_data(4 * piece) == 5 * piece
        assert copy.read() == source.read_bytes()
    found = RemoteTree()
    fs._run(found.add(remote, f"/{name}", str(back), recursive=False))
    fs._run(tree_copy.get(remote, found, lambda files, size: moved.append(size)))
    assert back.read_bytes() == source.read_bytes() and back.stat().st_blocks * 512 <= 2 * piece
    assert sum(moved) == 2 * source.stat().st_size


@pytest.mark.parametrize("length", [10, SMALL_BYTES + 1])
def test_files_that_are_replaced_during_a_copy_are_whole_and_keep_their_permissions(
    fs: FileSystem, tmp_path: Path, length: int
) -> None:
    """The new file may be longer than the one that was listed, and its owner may have made it private."""
    top = f"/replaced-{length}"
    fs.mkdir(top)
    remote, new = AsyncFileSystem(fs._context()), os.urandom(length + 100)
    for name in ("file", "other"):
        fs.write_file(f"{top}/{name}", bytes(length))
    found = RemoteTree()
    fs._run(found.add(remote, top, str(tmp_path / "out"), recursive=True))
    fs.write_file("/the-new-one", new)
    fs.chmod("/the-new-one", 0o600)
    fs.rename("/the-new-one", f"{top}/file")
    fs._run(tree_copy.get(remote, found, lambda files, size: None))
    out = tmp_path / "out" / "file"
    assert out.read_bytes() == new and out.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "out" / "other").read_bytes() == bytes(length)

    (tmp_path / "in").mkdir()
    source = tmp_path / "in" / "file"
    source.write_bytes(bytes(length))
    source.chmod(0o644)
    tree = LocalTree()
    tree.add(str(tmp_path / "in"), f"{top}/in", recursive=True)
    os.rename(out, source)
    fs._run(tree_copy.put(remote, tree, lambda files, size: None))
    assert fs.read_file(f"{top}/in/file") == new and fs.stat(f"{top}/in/file").mode == 0o600
