"""The metadata of a directory of torch.distributed.checkpoint: a pickle, which is read without running what it names.

The file comes from whoever made the directory, so everything in it is checked.
"""

import io
import pickle
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import torch
from threefs_checkpoint.index import check_shape
from threefs_checkpoint.sharding import check_cover
from threefs_checkpoint.slices import Slice
from torch.distributed.checkpoint import metadata as of_torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from threefs.errors import Corrupt, NotFound, NotSupported
from threefs_torch.metadata_format import MAX_BYTES

_NAME = ".metadata"
#: Functions and classes that the metadata name beside those of torch's module for them and the types of numbers.
_NAMED = {
    ("collections", "OrderedDict"),
    ("torch", "Size"),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
}


class Content(NamedTuple):
    """The metadata of a directory, once they are checked."""

    tensors: dict[str, TensorStorageMetadata]
    stored: dict[MetadataIndex, _StorageInfo]
    left_out: list[str]


def read(directory: Path) -> Content:
    """Raises NotFound, Corrupt, NotSupported."""
    file = directory / _NAME
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(
            f"{directory} is no directory of torch.distributed.checkpoint: there is no file {file}"
        ) from None
    if len(content) > MAX_BYTES:
        raise Corrupt(f"{file} has more than the {MAX_BYTES} bytes that metadata have at most")
    return decode(content, str(file))


def decode(content: bytes, where: str) -> Content:
    """Raises Corrupt, NotSupported."""
    try:
        return _checked(_Unpickler(io.BytesIO(content)).load())
    except NotSupported as error:
        raise NotSupported(f"{where} {error}") from None
    except ValueError as error:
        raise Corrupt(f"{where} is not what torch.distributed.checkpoint writes: {error}") from None
    except Exception as error:  # a pickle that is cut short or damaged raises many kinds
        raise Corrupt(f"{where} is not what torch.distributed.checkpoint writes: {error!r}") from None


def _checked(found: Any) -> Content:
    """Raises ValueError and others: the classes of torch check nothing."""
    if type(found) is not Metadata:
        raise ValueError(f"it has a {type(found).__name__}")
    tensors: dict[str, TensorStorageMetadata] = {}
    left_out: list[str] = []
    for name, entry in _rows(found.state_dict_metadata):
        if type(name) is not str:
            raise ValueError(f"a value is called {name!r:.100}")
        if type(entry) is TensorStorageMetadata:
            _check_tensor(name, entry)
            tensors[name] = entry
        elif type(entry) is BytesStorageMetadata:
            left_out.append(name)
        else:
            raise ValueError(f"value {name!r} is described by a {type(entry).__name__}")
    stored = dict(_rows(found.storage_data))
    for index, place in stored.items():
        if type(index) is not MetadataIndex or type(place) is not _StorageInfo:
            raise ValueError("where values lie is not said by a _StorageInfo for each MetadataIndex")
        _check_place(place)
    return Content(tensors, stored, left_out)


def _rows(found: Any) -> list[tuple[Any, Any]]:
    """Of a dictionary, whatever attributes the pickle has given it."""
    if not isinstance(found, dict):
        raise ValueError(f"it has a {type(found).__name__} in place of a dictionary")
    return list(dict.items(found))


def _check_tensor(name: str, entry: TensorStorageMetadata) -> None:
    properties, size = entry.properties, entry.size
    if type(properties) is not TensorProperties or not isinstance(properties.dtype, torch.dtype):
        raise ValueError(f"tensor {name!r} has no type")
    if not _is_shape(size, len(size)):
        raise ValueError(f"tensor {name!r} has the shape {size!r:.100}")
    check_shape(name, tuple(size), properties.dtype.itemsize)
    for chunk in entry.chunks:
        if not (_is_shape(chunk.offsets, len(size)) and _is_shape(chunk.sizes, len(size))):
            raise ValueError(f"a piece of tensor {name!r} has no place in it")
        if any(at + length > whole for at, length, whole in zip(chunk.offsets, chunk.sizes, size, strict=True)):
            raise ValueError(f"a piece reaches beyond tensor {name!r}")
    pieces = {Slice(tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in entry.chunks}
    check_cover(name, tuple(size), sorted(pieces))  # what no piece has would be whatever stood in that memory


def _is_shape(found: Any, dimensions: int) -> bool:
    return isinstance(found, torch.Size) and len(found) == dimensions and all(length >= 0 for length in found)


def _check_place(place: _StorageInfo) -> None:
    name = PurePosixPath(place.relative_path)
    if name.is_absolute() or ".." in name.parts:
        raise ValueError(f"the file {place.relative_path!r:.100} is not in the directory")
    if any(type(number) is not int or number < 0 for number in (place.offset, place.length)):
        raise ValueError(f"a value in {place.relative_path!r:.100} has no place there")


def _ignored(*parts: object) -> None:
    """In place of the path that a checkpoint was saved to. Nothing needs it, and paths of paths grow without end."""


def _member(kind: Any, name: str) -> Any:
    """As Python pickles members of enumerations, in some versions."""
    if not (isinstance(kind, type) and issubclass(kind, Enum)):
        raise NotSupported(f"asks {kind!r} for {name!r}, which metadata of torch.distributed.checkpoint do not")
    return kind[name]


class _Unpickler(pickle._Unpickler):
    """Makes the objects of which metadata consist, and no others.

    It is the one in Python: the other one takes memory for as many objects as a pickle of a few bytes says it has.
    """

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr"):
            return _member
        if module in ("pathlib", "pathlib._local") and name == "PosixPath":
            return _ignored
        found = getattr(torch, name, None) if module == "torch" else getattr(of_torch, name, None)
        is_number = module == "torch" and isinstance(found, torch.dtype)
        is_described = module == of_torch.__name__ and isinstance(found, type) and found.__module__ == module
        if is_number or is_described or (module, name) in _NAMED:
            return super().find_class(module, name)
        raise NotSupported(f"names {module}.{name}, which metadata of torch.distributed.checkpoint do not have")
