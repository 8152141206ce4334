import pytest
from threefs_cli.remote_tree import RemoteTree, safe_name
from threefs_client import AsyncFileSystem, FileSystem

from threefs.errors import Corrupt, IsADirectory, NotFound


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/etc", "a/b", "a\0b"])
def test_a_listing_leads_nowhere_else(name: str) -> None:
    with pytest.raises(Corrupt):
        safe_name(name)
    assert safe_name("..x") == "..x"


def test_a_tree_is_found_whole(fs: FileSystem) -> None:
    fs.mkdir("/remote_tree/a/b", parents=True)
    fs.write_file("/remote_tree/one", b"1")
    fs.write_file("/remote_tree/a/b/two", b"22")
    fs.symlink("../one", "/remote_tree/a/link")
    remote = AsyncFileSystem(fs._context())
    tree = RemoteTree()
    fs._run(tree.add(remote, "/remote_tree/", "out", recursive=True))
    assert tree.directories == ["out", "out/a", "out/a/b"]
    assert sorted((file.source, file.destination, file.length_bytes) for file in tree.files) == [
        ("/remote_tree/a/b/two", "out/a/b/two", 2),
        ("/remote_tree/one", "out/one", 1),
    ]
    assert tree.symlinks == [("../one", "out/a/link")]
    assert tree.length_bytes == 3
    with pytest.raises(IsADirectory, match="-r"):
        fs._run(tree.add(remote, "/remote_tree", "out", recursive=False))
    with pytest.raises(NotFound):
        fs._run(tree.add(remote, "/remote_tree/none", "out", recursive=True))
