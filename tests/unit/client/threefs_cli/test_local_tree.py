import os
from pathlib import Path

import pytest
from threefs_cli.local_tree import LocalTree

from threefs.errors import IsADirectory, NotSupported


@pytest.fixture
def source(tmp_path: Path) -> Path:
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    (top / "empty").mkdir()
    (top / "one").write_bytes(b"1")
    (top / "a" / "b" / "two").write_bytes(b"22")
    (top / "a" / "b" / "two").chmod(0o600)
    (top / "a" / "link").symlink_to("../one")
    (top / "a" / "loop").symlink_to("..")
    os.mkfifo(top / "pipe")
    return top


def test_a_tree_is_found_whole(source: Path) -> None:
    tree = LocalTree()
    tree.add(str(source), "/dst", recursive=True)
    assert [sorted(level) for level in tree.levels] == [["/dst"], ["/dst/a", "/dst/empty"], ["/dst/a/b"]]
    assert sorted((file.destination, file.length_bytes) for file in tree.files) == [
        ("/dst/a/b/two", 2),
        ("/dst/one", 1),
    ]
    assert next(file.mode for file in tree.files if file.destination.endswith("two")) == 0o600
    assert sorted(tree.symlinks) == [("..", "/dst/a/loop"), ("../one", "/dst/a/link")]
    assert tree.skipped == [str(source / "pipe")]
    assert (tree.directories, tree.length_bytes) == (4, 3)


def test_chosen_files_bring_their_directories(source: Path) -> None:
    tree = LocalTree()
    tree.add_files(str(source), "/dst", ["one", "a/b/two"])
    assert tree.levels == [["/dst"], ["/dst/a"], ["/dst/a/b"]]
    assert [file.destination for file in tree.files] == ["/dst/one", "/dst/a/b/two"]


def test_what_cannot_be_copied(source: Path) -> None:
    tree = LocalTree()
    with pytest.raises(IsADirectory, match="-r"):
        tree.add(str(source), "/dst", recursive=False)
    with pytest.raises(NotSupported, match="pipe"):
        tree.add(str(source / "pipe"), "/dst", recursive=True)
    with pytest.raises(FileNotFoundError):
        tree.add(str(source / "nothing"), "/dst", recursive=True)
    assert tree == LocalTree()
