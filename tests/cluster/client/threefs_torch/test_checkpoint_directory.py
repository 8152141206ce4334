import pickle

import pytest
from threefs_client import FileSystem

torch = pytest.importorskip("torch", reason="torch is not installed (make ml-venv)")
from threefs_torch.checkpoint_directory import CheckpointDirectory, is_url  # noqa: E402
from torch.distributed.checkpoint.metadata import Metadata  # noqa: E402

from threefs.errors import AlreadyExists, Corrupt, InvalidArgument, NotFound  # noqa: E402


def test_metadata_are_published_in_one_step(url: str, path: str, fs: FileSystem) -> None:
    directory = CheckpointDirectory(url)
    assert not directory.is_published(None)
    with pytest.raises(NotFound, match="no save into it was completed"):
        directory.read_metadata()
    directory.publish(Metadata({}, storage_data={}, version="1"), rank=None, replace=False)
    assert directory.is_published(None) and not directory.is_published(3)
    with pytest.raises(AlreadyExists, match="has a checkpoint already"):
        directory.publish(Metadata({}, storage_data={}, version="2"), rank=None, replace=False)
    directory.publish(Metadata({}, storage_data={}, version="3"), rank=None, replace=True)
    directory.publish(Metadata({}, storage_data={}, version="of rank"), rank=3, replace=False)
    assert directory.read_metadata().version == "3" and directory.read_metadata(3).version == "of rank"
    assert [entry.name for entry in fs.list(path)] == [".metadata.json", ".rank-3.metadata.json"]


def test_another_process_gets_the_same(url: str) -> None:
    directory = CheckpointDirectory(url, timeout_s=50.0)
    directory.publish(Metadata({}, storage_data={}), rank=None, replace=False)
    copy = pickle.loads(pickle.dumps(directory))  # noqa: S301
    assert copy.url == directory.url == url and copy.is_published(None)
    assert copy.other(url + "/b").url == url + "/b"


def test_what_is_not_ours_is_named(url: str, path: str, fs: FileSystem) -> None:
    fs.write_file(f"{path}/.metadata", b"a pickle")
    with pytest.raises(NotFound, match="read it with FsspecReader"):
        CheckpointDirectory(url).read_metadata()
    fs.write_file(f"{path}/.metadata.json", b"a pickle")
    with pytest.raises(Corrupt, match=r"metadata\.json is not the metadata"):
        CheckpointDirectory(url).read_metadata()
    with fs.open(f"{path}/.metadata.json", "r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(Corrupt, match="metadata have at most"):
        CheckpointDirectory(url).read_metadata()


def test_only_urls_of_clusters() -> None:
    assert is_url("threefs://a:1/b") and is_url("threefs:///b") and not is_url("/b") and not is_url("s3://b/c")
    with pytest.raises(InvalidArgument, match="'/a/b' is not on a cluster; write threefs://"):
        CheckpointDirectory("/a/b")
