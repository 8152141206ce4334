"""The metadata of a distributed checkpoint as JSON: what torch.distributed.checkpoint keeps in a pickle.

Two lines: a header with the length and the checksum of the second, and the metadata. Nothing in it is code. Everything
in it is checked before it is used, because it comes from storage.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

from threefs.checksums import crc32c
from threefs.errors import Corrupt, InvalidArgument, NotSupported
from threefs_torch.tensor_bytes import DTYPES, dtype_name

FORMAT = "threefs distributed checkpoint"
VERSION = 1
#: A million pieces of tensors take some 200 MB.
MAX_BYTES = 512 << 20
#: Of a value that is no tensor.
MAX_OBJECT_BYTES = 1 << 30
MAX_NUMBER = 1 << 53
MAX_DIMENSIONS = 64
#: Places in a list that the planner has flattened.
MAX_LIST = 1 << 20

_HEADER_BYTES = 4096


@dataclass(frozen=True, slots=True)
class StoredItem:
    """Where a piece of a tensor, or another object, is stored."""

    file: str  # in the directory of the checkpoint
    offset: int
    length: int
    dtype: str  # of the numbers of a tensor, by the name that torch gives it; "" for another object


# ---- writing ----


def encode(metadata: Metadata) -> bytes:
    """Raises InvalidArgument for what only a pickle could hold."""
    content = json.dumps(
        {
            "state": {name: _encode_entry(name, entry) for name, entry in metadata.state_dict_metadata.items()},
            "paths": _encode_paths(metadata.planner_data),
            "items": [_encode_item(index, item) for index, item in metadata.storage_data.items()],
            "meta": _encode_meta(metadata.storage_meta),
            "version": metadata.version,
        },
        separators=(",", ":"),
    ).encode()
    header = {"format": FORMAT, "version": VERSION, "bytes": len(content), "crc32c": crc32c(content)}
    whole = json.dumps(header).encode() + b"\n" + content + b"\n"
    if len(whole) > MAX_BYTES:
        raise InvalidArgument(f"metadata of {len(whole)} bytes; a checkpoint has at most {MAX_BYTES}")
    return whole


def _encode_entry(name: str, entry: Any) -> Any:
    if isinstance(entry, BytesStorageMetadata):
        return None
    properties = entry.properties
    if properties.layout is not torch.strided:
        raise InvalidArgument(f"tensor {name!r} has the layout {properties.layout}; a checkpoint holds dense tensors")
    return {
        "dtype": dtype_name(properties.dtype),
        "requires_grad": properties.requires_grad,
        "size": list(entry.size),
        "chunks": [[list(chunk.offsets), list(chunk.sizes)] for chunk in entry.chunks],
    }


def _encode_paths(paths: Any) -> Any:
    """The place of each value in the nested dictionaries and lists that the planner has flattened."""
    if paths is None:
        return None
    if not isinstance(paths, dict):
        raise InvalidArgument(
            f"the planner keeps a {type(paths).__qualname__} with the checkpoint, which only a pickle could hold; "
            "DefaultSavePlanner keeps paths"
        )
    for name, path in paths.items():
        for part in path:
            if type(part) not in (str, int):
                raise InvalidArgument(
                    f"value {name!r} stands under the key {part!r}, a {type(part).__qualname__}; keys in a checkpoint "
                    "are text or whole numbers"
                )
    return {name: list(path) for name, path in paths.items()}


def _encode_item(index: MetadataIndex, item: StoredItem) -> list[Any]:
    offset = None if index.offset is None else list(index.offset)
    return [index.fqn, offset, index.index, item.file, item.offset, item.length, item.dtype]


def _encode_meta(meta: StorageMeta | None) -> Any:
    if meta is None:
        return None
    name = None if meta.checkpoint_id is None else str(meta.checkpoint_id)
    return {"checkpoint_id": name, "save_id": meta.save_id, "modules": list(meta.modules)}


# ---- reading ----


def decode(content: bytes, where: str) -> Metadata:
    """Raises Corrupt, NotSupported."""
    payload = _checked_payload(content, where)
    try:
        fields = json.loads(payload, parse_float=_refused, parse_constant=_refused)
        metadata = Metadata(
            state_dict_metadata={_text(name): _decode_entry(entry) for name, entry in fields["state"].items()},
            planner_data=_decode_paths(fields["paths"]),
            storage_data=dict(_decode_item(row) for row in fields["items"]),
            storage_meta=_decode_meta(fields["meta"]),
            version=None if fields["version"] is None else _text(fields["version"]),
        )
        _check_items(metadata)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Corrupt(f"{where}: the metadata is not valid: {error!r}") from None
    return metadata


def _checked_payload(content: bytes, where: str) -> bytes:
    line, _, _ = content[:_HEADER_BYTES].partition(b"\n")
    try:
        header = json.loads(line)
        kind, version, size, crc = (header[name] for name in ("format", "version", "bytes", "crc32c"))
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Corrupt(f"{where} is not the metadata of a threefs checkpoint, or was cut short") from None
    if kind != FORMAT:
        raise Corrupt(f"{where} has the format {kind!r}, not {FORMAT!r}")
    if version != VERSION:
        raise NotSupported(f"{where} has format version {version!r}; this program reads version {VERSION}")
    payload = content[len(line) + 1 : -1]
    if len(payload) != size:
        raise Corrupt(f"{where} has {len(payload)} of {size!r} bytes of metadata")
    if crc32c(payload) != crc:
        raise Corrupt(f"{where} does not match its checksum")
    return payload


def _refused(number: str) -> Any:
    raise ValueError(f"{number[:40]} is not a whole number")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.100} is not text")
    return value


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_NUMBER:
        raise ValueError(f"{value!r:.100} is not a whole number from 0 to {MAX_NUMBER}")
    return value


def _size(value: Any) -> torch.Size:
    if not isinstance(value, list) or len(value) > MAX_DIMENSIONS:
        raise ValueError(f"{value!r:.100} is not a shape of at most {MAX_DIMENSIONS} dimensions")
    return torch.Size([_number(length) for length in value])


def _dtype(name: Any) -> torch.dtype:
    if name not in DTYPES:
        raise ValueError(f"{name!r:.100} is no dtype of this version of torch")
    return DTYPES[name]


def _decode_entry(entry: Any) -> TensorStorageMetadata | BytesStorageMetadata:
    if entry is None:
        return BytesStorageMetadata()
    if type(entry["requires_grad"]) is not bool:
        raise ValueError("requires_grad is true or false")
    size = _size(entry["size"])
    chunks = [ChunkStorageMetadata(_size(offsets), _size(sizes)) for offsets, sizes in entry["chunks"]]
    for chunk in chunks:
        if len(chunk.offsets) != len(size) or len(chunk.sizes) != len(size):
            raise ValueError(f"a piece of {len(chunk.sizes)} dimensions of a tensor of {len(size)}")
        if any(at + length > whole for at, length, whole in zip(chunk.offsets, chunk.sizes, size, strict=True)):
            raise ValueError(f"a piece at {list(chunk.offsets)} of {list(chunk.sizes)} in a tensor of {list(size)}")
    return TensorStorageMetadata(
        TensorProperties(_dtype(entry["dtype"]), requires_grad=entry["requires_grad"]), size, chunks
    )


def _decode_paths(paths: Any) -> Any:
    if paths is None:
        return None
    for path in paths.values():
        if not isinstance(path, list) or not path or any(type(part) not in (str, int) for part in path):
            raise ValueError(f"{path!r:.100} is not a path of text and whole numbers")
        for part in path:
            if type(part) is int and not 0 <= part <= MAX_LIST:
                raise ValueError(f"{part} is not a place in a list of at most {MAX_LIST}")
    return {name: tuple(path) for name, path in paths.items()}


def _decode_item(row: Any) -> tuple[MetadataIndex, StoredItem]:
    fqn, place, index, file, offset, length, dtype = row
    if not _text(file) or "/" in file or file in (".", ".."):
        raise ValueError(f"{file!r:.100} is not the name of a file in the directory")
    if dtype != "":
        _dtype(dtype)
    found = StoredItem(file, _number(offset), _number(length), dtype)
    return MetadataIndex(
        _text(fqn), None if place is None else _size(place), None if index is None else _number(index)
    ), found


def _decode_meta(meta: Any) -> StorageMeta | None:
    if meta is None:
        return None
    name, save_id = (None if meta[field] is None else _text(meta[field]) for field in ("checkpoint_id", "save_id"))
    return StorageMeta(name, save_id, modules=[_text(name) for name in meta["modules"]])


def _check_items(metadata: Metadata) -> None:
    """Each piece of a tensor is stored, as long as it should be; so is each other object."""
    for index, length in _expected(metadata):
        item = metadata.storage_data.get(index)
        if item is None:
            raise ValueError(f"a piece of {index.fqn!r} is stored nowhere")
        if (length is None) != (item.dtype == ""):
            raise ValueError(f"{index.fqn!r} is stored as {item.dtype or 'an object'}")
        if length is not None and length * DTYPES[item.dtype].itemsize != item.length:
            raise ValueError(f"{item.length} bytes for {length} numbers of {index.fqn!r} in {item.dtype}")


def _expected(metadata: Metadata) -> Iterator[tuple[MetadataIndex, int | None]]:
    for name, entry in metadata.state_dict_metadata.items():
        if isinstance(entry, BytesStorageMetadata):
            yield MetadataIndex(name), None
        else:
            for chunk in entry.chunks:
                yield MetadataIndex(name, chunk.offsets), math.prod(chunk.sizes)
