import pytest
from threefs_fsspec import ThreefsFileSystem


@pytest.fixture
def tree(threefs: ThreefsFileSystem, place: str) -> str:
    for name in ("a1", "a2", "d/b1", "d/e/c1"):
        threefs.pipe_file(f"{place}/{name}", b"")
    return place


def test_files_are_removed_and_directories_only_with_what_is_in_them(threefs: ThreefsFileSystem, tree: str) -> None:
    threefs.rm(f"{tree}/a*")
    assert threefs.ls(tree, detail=False) == [f"{tree}/d"]
    with pytest.raises(IsADirectoryError):
        threefs.rm(f"{tree}/d")
    with pytest.raises(IsADirectoryError):
        threefs.rm_file(f"{tree}/d")
    assert threefs.exists(f"{tree}/d/e/c1")
    threefs.rm(f"{tree}/d", recursive=True)
    assert threefs.ls(tree) == []
    with pytest.raises(FileNotFoundError):
        threefs.rm(f"{tree}/d", recursive=True)
    with pytest.raises(FileNotFoundError):
        threefs.rm(f"{tree}/d")
    with pytest.raises(FileNotFoundError):
        threefs.rm([f"{tree}/none"])


def test_a_pattern_may_name_a_directory_and_what_lies_below_it(threefs: ThreefsFileSystem, tree: str) -> None:
    threefs.rm(f"{tree}/**", recursive=True)
    assert threefs.find(tree) == []


def test_empty_directories(threefs: ThreefsFileSystem, tree: str) -> None:
    with pytest.raises(OSError, match="empty"):
        threefs.rmdir(f"{tree}/d")
    threefs.mkdir(f"{tree}/empty")
    threefs.rmdir(f"{tree}/empty")
    assert not threefs.exists(f"{tree}/empty")
    threefs.rm(f"{tree}/d/e", recursive=True, maxdepth=1)
    assert not threefs.exists(f"{tree}/d/e")
