import pytest
from threefs_fsspec import ThreefsFileSystem


@pytest.fixture
def tree(threefs: ThreefsFileSystem, place: str) -> str:
    """Two levels, with links to a file, to the directory above, and to nowhere."""
    for name in ("a1", "a2", "d/b1", "d/e/c1"):
        threefs.pipe_file(f"{place}/{name}", name.encode())
    client = threefs.client
    client.symlink("a1", f"{place}/to-file")
    client.symlink("..", f"{place}/d/to-above")
    client.symlink("nothing", f"{place}/to-nowhere")
    return place


def test_links_are_shown_as_what_they_lead_to(threefs: ThreefsFileSystem, tree: str) -> None:
    listed = {one["name"].removeprefix(tree + "/"): one for one in threefs.ls(tree)}
    assert {name: one["type"] for name, one in listed.items()} == {
        "a1": "file",
        "a2": "file",
        "d": "directory",
        "to-file": "file",
        "to-nowhere": "other",
    }
    assert listed["to-file"]["size"] == 2 and listed["to-file"]["destination"] == "a1"
    assert all(threefs.info(f"{tree}/{name}") == one for name, one in listed.items())
    assert not threefs.exists(f"{tree}/to-nowhere") and threefs.lexists(f"{tree}/to-nowhere")
    assert threefs.ls(f"{tree}/a1", detail=False) == [f"{tree}/a1"]
    with pytest.raises(FileNotFoundError):
        threefs.ls(f"{tree}/none")


def test_a_search_ends_at_links_to_directories(threefs: ThreefsFileSystem, tree: str) -> None:
    files = ["a1", "a2", "d/b1", "d/e/c1", "to-file", "to-nowhere"]
    assert threefs.find(tree) == [f"{tree}/{name}" for name in files]
    assert threefs.find(tree, maxdepth=1) == [f"{tree}/{name}" for name in files if "/" not in name]
    everything = threefs.find(tree, withdirs=True, detail=True)
    assert {"d", "d/e", "d/to-above"} == {
        name.removeprefix(tree + "/") for name, one in everything.items() if one["type"] == "directory" and name != tree
    }
    assert threefs.find(f"{tree}/a1") == [f"{tree}/a1"]
    assert threefs.find(f"{tree}/none") == []
    walked = list(threefs.walk(tree))
    assert walked == [
        (tree, ["d"], ["a1", "a2", "to-file", "to-nowhere"]),
        (f"{tree}/d", ["e", "to-above"], ["b1"]),
        (f"{tree}/d/e", [], ["c1"]),
    ]
    assert sorted(threefs.walk(tree, topdown=False)) == sorted(walked)
    assert list(threefs.walk(tree, maxdepth=1)) == walked[:1]
    with pytest.raises(FileNotFoundError):
        list(threefs.walk(f"{tree}/none", on_error="raise"))


def test_patterns_and_sums(threefs: ThreefsFileSystem, tree: str) -> None:
    assert threefs.glob(f"{tree}/a*") == [f"{tree}/a1", f"{tree}/a2"]
    assert threefs.glob(f"{tree}/**/c1") == [f"{tree}/d/e/c1"]
    assert threefs.glob(f"{tree}/*/b?") == [f"{tree}/d/b1"]
    assert threefs.glob(f"{tree}/none*") == []
    assert threefs.du(f"{tree}/d") == len("d/b1") + len("d/e/c1")
    assert threefs.du(tree, total=False, maxdepth=1)[f"{tree}/a1"] == 2
    assert threefs.sizes([f"{tree}/a1", f"{tree}/d/b1"]) == [2, 4]
