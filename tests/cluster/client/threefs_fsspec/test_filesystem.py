"""The file system for fsspec, on a real cluster: fsspec's own suite, and what it does not ask for."""

import posixpath
from collections.abc import Callable

import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)
from threefs_fsspec import ThreefsFileSystem


class ThreefsFixtures(AbstractFixtures):
    @pytest.fixture
    def fs(self, threefs: ThreefsFileSystem) -> ThreefsFileSystem:
        return threefs

    @pytest.fixture
    def fs_path(self, place: str) -> str:
        return place

    @pytest.fixture
    def fs_join(self) -> Callable[..., str]:
        return posixpath.join


class TestCopy(AbstractCopyTests, ThreefsFixtures):
    pass


class TestGet(AbstractGetTests, ThreefsFixtures):
    pass


class TestPut(AbstractPutTests, ThreefsFixtures):
    pass


class TestPipe(AbstractPipeTests, ThreefsFixtures):
    pass


class TestOpen(AbstractOpenTests, ThreefsFixtures):
    pass


def test_names_move_in_one_step(threefs: ThreefsFileSystem, place: str) -> None:
    """The cases of fsspec's own test of `mv`, and those of directories."""
    threefs.pipe({f"{place}/a": b"a", f"{place}/d/b": b"b"})
    number = threefs.info(f"{place}/a")["ino"]
    threefs.mv(f"{place}/a", f"{place}/new/c")
    assert threefs.info(f"{place}/new/c")["ino"] == number and not threefs.exists(f"{place}/a")
    threefs.mv(f"{place}/new/c", f"{place}/d")  # into the directory
    assert threefs.find(place) == [f"{place}/d/b", f"{place}/d/c"]
    threefs.mv(f"{place}/d/b", f"{place}/d/c")
    assert threefs.cat_file(f"{place}/d/c") == b"b"
    with pytest.raises(IsADirectoryError):
        threefs.mv(f"{place}/d", f"{place}/e")
    threefs.mv(f"{place}/d", f"{place}/e", recursive=True)
    threefs.mv(f"{place}/e", f"{place}/e", recursive=True)
    assert threefs.find(place) == [f"{place}/e/c"]
    with pytest.raises(FileNotFoundError):
        threefs.mv(f"{place}/none", f"{place}/f")
    threefs.mv(f"{place}/e/*", f"{place}/g/")
    assert threefs.find(place) == [f"{place}/g/c"]


@pytest.mark.parametrize("recursive", (True, False))
def test_a_move_that_is_not_permitted_changes_nothing(threefs: ThreefsFileSystem, place: str, recursive: bool) -> None:
    threefs.pipe_file(f"{place}/a", b"content")
    strict = ThreefsFileSystem(threefs.address, auto_mkdir=False, timeout_s=30.0)
    with pytest.raises(FileNotFoundError):
        strict.mv(f"{place}/a", f"{place}/none/a", recursive=recursive)
    assert threefs.find(place) == [f"{place}/a"]


def test_directories(threefs: ThreefsFileSystem, place: str) -> None:
    threefs.mkdir(f"{place}/a/b")
    with pytest.raises(FileExistsError):
        threefs.mkdir(f"{place}/a/b")
    with pytest.raises(FileExistsError):
        threefs.makedirs(f"{place}/a/b")
    threefs.makedirs(f"{place}/a/b", exist_ok=True)
    with pytest.raises(FileNotFoundError):
        threefs.mkdir(f"{place}/x/y", create_parents=False)
    threefs.pipe_file(f"{place}/file", b"")
    with pytest.raises(FileExistsError):
        threefs.makedirs(f"{place}/file", exist_ok=True)
    assert threefs.isdir(f"{place}/a") and not threefs.isfile(f"{place}/a") and threefs.isfile(f"{place}/file")
    assert not threefs.exists(f"{place}/file/below") and not threefs.isdir(f"{place}/file/below")


def test_the_key_of_a_file_changes_with_its_content(threefs: ThreefsFileSystem, place: str) -> None:
    path, keys = f"{place}/a", set()
    threefs.pipe_file(path, b"one")
    keys.add(threefs.ukey(path))
    assert threefs.ukey(path) in keys
    threefs.cat_file(path)
    assert threefs.ukey(path) in keys, "a read changes nothing"
    checksum = threefs.checksum(path)
    threefs.pipe_file(path, b"two")  # of the same length
    keys.add(threefs.ukey(path))
    with threefs.open(path, "r+b") as file:
        file.write(b"3")
    keys.add(threefs.ukey(path))
    assert len(keys) == 3 and threefs.checksum(path) != checksum


def test_times(threefs: ThreefsFileSystem, place: str) -> None:
    path = f"{place}/a"
    threefs.touch(path)
    assert threefs.cat_file(path) == b"" and threefs.created(path) <= threefs.modified(path)
    assert threefs.modified(path).tzinfo is not None
    threefs.pipe_file(path, b"content")
    before = threefs.modified(path)
    threefs.touch(path, truncate=False)
    assert threefs.cat_file(path) == b"content" and threefs.modified(path) > before
    threefs.touch(path)
    assert threefs.cat_file(path) == b""
    threefs.touch(f"{place}/b", truncate=False)
    assert threefs.cat_file(f"{place}/b") == b""


def test_ranges_of_many_files(threefs: ThreefsFileSystem, place: str) -> None:
    paths = [f"{place}/{number}" for number in range(5)]
    threefs.pipe({path: path.encode() for path in paths})
    assert threefs.cat_ranges(paths, 1, 8) == [path.encode()[1:8] for path in paths]
    assert threefs.cat_ranges(paths, [0, 1, 2, 3, -4], None, max_gap=100)[4] == paths[4].encode()[-4:]
    assert threefs.cat_file(paths[0], start=-4) == paths[0].encode()[-4:]
    mixed = threefs.cat_ranges([paths[0], f"{place}/none"], [0, 0], [3, 3])
    assert mixed[0] == paths[0].encode()[:3] and isinstance(mixed[1], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        threefs.cat_ranges([paths[0], f"{place}/none"], [0, 0], [3, 3], on_error="raise")
    with pytest.raises(ValueError, match="2 paths"):
        threefs.cat_ranges(paths[:2], [0], [1, 2])
    with pytest.raises(IsADirectoryError):
        threefs.cat_file(place)


def test_a_mapping_of_keys_to_content(threefs: ThreefsFileSystem, place: str) -> None:
    mapper = threefs.get_mapper(place)
    mapper["a/b"] = b"1"
    assert dict(mapper) == {"a/b": b"1"} and "c" not in mapper
    del mapper["a/b"]
    with pytest.raises(KeyError):
        mapper["a/b"]


def test_a_copy_keeps_the_permissions(threefs: ThreefsFileSystem, place: str) -> None:
    threefs.pipe_file(f"{place}/a", b"1", permissions=0o600)
    threefs.cp_file(f"{place}/a", f"{place}/new/b")
    assert threefs.cat_file(f"{place}/new/b") == b"1"
    assert threefs.info(f"{place}/new/b")["mode"] == threefs.info(f"{place}/a")["mode"]
    with pytest.raises(FileNotFoundError):
        threefs.cp_file(f"{place}/none", f"{place}/c")


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


def test_a_name_that_exists_is_no_pattern_for_what_removes_it(threefs: ThreefsFileSystem, place: str) -> None:
    def make(*names: str) -> None:
        threefs.pipe({f"{place}/{name}": name.encode() for name in names})

    make("a[1]", "a1", "b*", "b1", "c?", "c1")
    threefs.rm(f"{place}/a[1]")
    threefs.mv(f"{place}/b*", f"{place}/moved")
    threefs.mv([f"{place}/c?"], f"{place}/into/")
    assert threefs.find(place) == [f"{place}/{name}" for name in ("a1", "b1", "c1", "into/c?", "moved")]
    assert threefs.cat_file(f"{place}/moved") == b"b*"
    make("d[1]/x/y", "d1/x/y")
    threefs.rm([f"{place}/d[1]", f"{place}/c[1]"], recursive=True, maxdepth=3)
    assert threefs.find(place) == [f"{place}/{name}" for name in ("a1", "b1", "d1/x/y", "into/c?", "moved")]
    make("e[1]")
    threefs.rm([f"{place}/e[1]", f"{place}/none*"])
    assert not threefs.exists(f"{place}/e[1]")
    with pytest.raises(FileNotFoundError):
        threefs.rm(f"{place}/none[1]")


def test_a_pattern_may_name_a_directory_and_what_lies_below_it(threefs: ThreefsFileSystem, tree: str) -> None:
    threefs.rm(f"{tree}/**", recursive=True)
    assert threefs.find(tree) == []


def test_a_name_may_sort_between_a_directory_and_what_lies_below_it(threefs: ThreefsFileSystem, tree: str) -> None:
    threefs.pipe_file(f"{tree}/d-1", b"")  # "-" comes before "/"
    threefs.rm([f"{tree}/d/b1", f"{tree}/d-1", f"{tree}/d", f"{tree}/a1"], recursive=True)
    assert threefs.find(tree) == [f"{tree}/a2"]


def test_empty_directories(threefs: ThreefsFileSystem, tree: str) -> None:
    with pytest.raises(OSError, match="empty"):
        threefs.rmdir(f"{tree}/d")
    threefs.mkdir(f"{tree}/empty")
    threefs.rmdir(f"{tree}/empty")
    assert not threefs.exists(f"{tree}/empty")
    threefs.rm(f"{tree}/d/e", recursive=True, maxdepth=1)
    assert not threefs.exists(f"{tree}/d/e")
