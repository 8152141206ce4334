from pathlib import Path

from threefs_checkpoint.filesystem_protocol import FileSystem
from threefs_client.blocking.filesystem import FileSystem as Client

from tests.harness.checkpoint_files import CheckpointFiles


def test_the_stand_in_has_what_checkpoints_need(tmp_path: Path) -> None:
    fs: FileSystem = CheckpointFiles(str(tmp_path))
    with fs.open("/a", "wb") as file:
        fs.write_batch([(file, 2, b"cd"), (file, 0, b"ab")])
    fs.rename("/a", "/b")
    into = [memoryview(bytearray(3))]
    assert [bytes(view) for view in fs.read_batch([("/b", 1, 3)], into=into)] == [b"bcd"]
    assert bytes(into[0]) == b"bcd"
    fs.remove("/b")


def test_the_client_has_it_too() -> None:
    client: type[FileSystem] = Client  # for the type checker
    methods = {name for name in vars(FileSystem) if not name.startswith("_")}
    assert methods <= set(dir(client))
