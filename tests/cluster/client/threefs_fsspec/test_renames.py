import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from threefs_fsspec import ThreefsFileSystem

BEFORE = {"/d/a": b"a", "/d/b": b"b", "/d/s/c": b"c"}


@pytest.fixture
def tree(threefs: ThreefsFileSystem, place: str) -> Callable[[], dict[str, bytes]]:
    threefs.pipe({place + name: content for name, content in BEFORE.items()})
    return lambda: {name.removeprefix(place): threefs.cat_file(name) for name in threefs.find(place)}


@pytest.mark.parametrize(
    "source, target",
    [
        ("/d/", "/d"),
        ("/d/", "/d/"),
        ("/d/*", "/d/"),
        ("/d/*", "/d"),
        ("/d/**", "/d/"),
        (["/d/a"], "/d/"),
        (["/d/a", "/d/s"], ["/d/a", "/d/s"]),
    ],
)
def test_what_is_moved_to_its_own_place_stays(
    threefs: ThreefsFileSystem, place: str, tree: Callable[[], Any], source: Any, target: Any
) -> None:
    source, target = (
        [place + one for one in each] if isinstance(each, list) else place + each for each in (source, target)
    )
    threefs.mv(source, target, recursive=True)
    assert tree() == BEFORE


def test_no_directory_loses_what_a_depth_or_a_list_leaves_out(
    threefs: ThreefsFileSystem, place: str, tree: Callable[[], Any]
) -> None:
    threefs.mv(f"{place}/d", f"{place}/e", recursive=True, maxdepth=1)
    assert tree() == {"/e/a": b"a", "/e/b": b"b", "/e/s/c": b"c"}
    threefs.mv([f"{place}/e"], [f"{place}/f"], recursive=True)
    assert tree() == {"/f/a": b"a", "/f/b": b"b", "/f/s/c": b"c"}
    threefs.mv([f"{place}/f"], f"{place}/g", recursive=True)
    assert tree() == {"/g/f/a": b"a", "/g/f/b": b"b", "/g/f/s/c": b"c"}


def test_the_content_of_a_directory_moves_into_another_one(
    threefs: ThreefsFileSystem, place: str, tree: Callable[[], Any]
) -> None:
    threefs.mkdir(f"{place}/e")
    threefs.mv(f"{place}/d/", f"{place}/e", recursive=True)
    assert tree() == {"/e/a": b"a", "/e/b": b"b", "/e/s/c": b"c"} and not threefs.exists(f"{place}/d")
    threefs.mv(pathlib.Path(f"{place}/e/a"), f"{place}/one")
    threefs.mv(f"{place}/e/**", f"{place}/f/", recursive=True)
    assert tree() == {"/one": b"a", "/f/b": b"b", "/f/s/c": b"c"}


def test_of_two_names_of_one_file_the_source_goes(
    threefs: ThreefsFileSystem, place: str, tree: Callable[[], Any]
) -> None:
    threefs.client.hard_link(f"{place}/d/a", f"{place}/same")
    threefs.mv(f"{place}/d/a", f"{place}/same")
    assert tree() == {"/same": b"a", "/d/b": b"b", "/d/s/c": b"c"}


def test_of_two_files_none_replaces_the_other(threefs: ThreefsFileSystem, place: str, tree: Callable[[], Any]) -> None:
    threefs.pipe_file(f"{place}/d/s/a", b"another")
    with pytest.raises(OSError, match="the same name"):
        threefs.mv([f"{place}/d/a", f"{place}/d/s/a"], f"{place}/e")
    with pytest.raises(IsADirectoryError):
        threefs.mv(f"{place}/d/*", f"{place}/e/")
    with pytest.raises(OSError, match="below itself"):
        threefs.mv(f"{place}/d/", f"{place}/d/s", recursive=True)
    assert sorted(tree().values()) == [b"a", b"another", b"b", b"c"]
