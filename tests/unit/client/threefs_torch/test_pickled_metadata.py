"""Metadata that whoever made a directory has put there."""

import os
import pickle
from pathlib import Path, PosixPath
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (make ml-venv)")
from threefs_torch import pickled_metadata  # noqa: E402
from threefs_torch.pickled_metadata import decode  # noqa: E402
from torch.distributed.checkpoint.filesystem import _StorageInfo  # noqa: E402
from torch.distributed.checkpoint.metadata import (  # noqa: E402
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

from threefs.errors import Corrupt, NotFound, NotSupported  # noqa: E402


def piece(*place: int) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(torch.Size(place), torch.Size([4]))


def tensor(size: Any = None, dtype: Any = torch.float32, chunks: Any = None) -> TensorStorageMetadata:
    size, chunks = size or torch.Size([4]), chunks or [piece(0)]
    return TensorStorageMetadata(TensorProperties(dtype), size, chunks)


def metadata(entry: Any = None, place: Any = None, **fields: Any) -> Metadata:
    entries = {"w": tensor() if entry is None else entry}
    stored = {MetadataIndex("w", torch.Size([0])): _StorageInfo("__0_0.distcp", 0, 16) if place is None else place}
    return Metadata(**{"state_dict_metadata": entries, "storage_data": stored, **fields})


class Growing:
    """A path of itself, over and over."""

    def __init__(self, times: int) -> None:
        self.times = times

    def __reduce__(self) -> Any:
        return PosixPath, ("x",) if not self.times else (Growing(self.times - 1),) * 2


def test_what_torch_writes_is_read() -> None:
    """With Python 3.13 too, where paths are of another module."""
    entries = {"w": tensor(), "step": BytesStorageMetadata()}
    own = metadata(state_dict_metadata=entries, storage_meta=StorageMeta(checkpoint_id=PosixPath("/a/b"), save_id="s"))
    content = pickle.dumps(own, protocol=3)
    name = f"{PosixPath.__module__}\nPosixPath".encode()
    assert name in content
    others = [content.replace(name, module + b"\nPosixPath") for module in (b"pathlib", b"pathlib._local")]
    for each in (pickle.dumps(own), *others):
        found = decode(each, "d")
        assert found == ({"w": entries["w"]}, own.storage_data, ["step"])


def test_paths_of_paths_take_no_memory() -> None:
    """This one would have a terabyte."""
    content = pickle.dumps(metadata(storage_meta=StorageMeta(checkpoint_id=Growing(40))))
    assert len(content) < 2000 and decode(content, "d").left_out == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x04Nr\xff\xff\xff\xff.", "it has a NoneType"),  # one object, of which a C program would make 64 GB
        (pickle.dumps(metadata(tensor(torch.Size([1 << 60])))), "is larger than"),
        (pickle.dumps(metadata(tensor(torch.Size([-1])))), r"has the shape torch\.Size\(\[-1\]\)"),
        (pickle.dumps(metadata(tensor([4]))), r"has the shape \[4\]"),
        (pickle.dumps(metadata(tensor(dtype="float32"))), "has no type"),
        (pickle.dumps(metadata(tensor(chunks=[5]))), "AttributeError"),
        (
            pickle.dumps(metadata(tensor(chunks=[piece(2)]))),
            "reaches beyond",
        ),
        (
            pickle.dumps(metadata(tensor(chunks=[piece()]))),
            "has no place",
        ),
        (pickle.dumps(metadata(tensor(torch.Size([8])))), "have 4 of its 8 elements"),
        (pickle.dumps(metadata(tensor(torch.Size([5]), chunks=[piece(0), piece(1)]))), "overlap"),
        (pickle.dumps(metadata("w")), "described by a str"),
        (pickle.dumps(metadata(state_dict_metadata=[("w", tensor())])), "a list in place of a dictionary"),
        (pickle.dumps(metadata(state_dict_metadata={3: tensor()})), "called 3"),
        (pickle.dumps(metadata(storage_data=None)), "a NoneType in place of a dictionary"),
        (pickle.dumps(metadata(storage_data={"w": 3})), "_StorageInfo for each"),
        (pickle.dumps(metadata(place=_StorageInfo("../secret", 0, 16))), "'../secret' is not in the directory"),
        (pickle.dumps(metadata(place=_StorageInfo("/etc/passwd", 0, 16))), "'/etc/passwd' is not in the directory"),
        (pickle.dumps(metadata(place=_StorageInfo("a", -1, 16))), "no place there"),
        (pickle.dumps(Metadata.__new__(Metadata)), "AttributeError"),
    ],
)
def test_metadata_that_torch_does_not_write_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(Corrupt, match=f"^d is not what .* writes: .*{message}"):
        decode(content, "d")


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch evil",)


class Reaching:
    def __reduce__(self) -> Any:
        return getattr, (torch.Size, "mro")


def test_code_that_metadata_name_does_not_run(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no file .*/\.metadata"):
        pickled_metadata.read(tmp_path)
    for content, kind, message in (
        (pickle.dumps(Evil()), NotSupported, r"names posix\.system"),
        (pickle.dumps(Reaching()), NotSupported, "asks .*Size.* for 'mro'"),
        (pickle.dumps([1]), Corrupt, "it has a list"),
        (b"\x80\x05", Corrupt, "is not what"),
    ):
        (tmp_path / ".metadata").write_bytes(content)
        with pytest.raises(kind, match=message):
            pickled_metadata.read(tmp_path)
    assert not os.path.exists("evil")


def test_a_file_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / ".metadata").open("wb") as file:
        file.truncate(600 << 20)
    with pytest.raises(Corrupt, match="more than the"):
        pickled_metadata.read(tmp_path)
