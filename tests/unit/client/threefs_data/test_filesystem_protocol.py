from pathlib import Path

from threefs_client.blocking.filesystem import FileSystem as Client
from threefs_data.filesystem_protocol import FileSystem

from tests.harness.local_files import LocalFiles


def test_the_stand_in_has_what_datasets_need(tmp_path: Path) -> None:
    fs: FileSystem = LocalFiles(str(tmp_path))
    fs.mkdir("/a")
    with fs.open("/a/b", "wb") as file:
        file.write(b"hello")
    fs.rename("/a", "/c")
    assert [bytes(view) for view in fs.read_batch([("/c/b", 1, 3)])] == [b"ell"]
    fs.remove("/c", recursive=True)


def test_the_client_has_it_too() -> None:
    client: type[FileSystem] = Client  # for the type checker
    methods = {name for name in vars(FileSystem) if not name.startswith("_")}
    assert methods <= set(dir(client))
