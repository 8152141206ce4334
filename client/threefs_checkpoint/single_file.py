"""Checkpoints of the first format, one file for a dictionary of arrays. They are read, and not written any more.

A header in a chunk of its own, then the arrays, then the index (JSON). Integers and arrays are little-endian.
"""

import json
import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from threefs.checksums import crc32c
from threefs.errors import Corrupt, NotFound, NotSupported
from threefs_checkpoint.dtypes import bytes_of
from threefs_checkpoint.filesystem_protocol import FileSystem

VERSION = 1
MAX_INDEX_BYTES = 64 << 20
MAX_DIMENSIONS = 32
MAX_FILE_BYTES = 1 << 50
_PART_BYTES = 64 << 20  # read at a time

#: The types that an array may hold: plain numbers, never objects.
DTYPES = {
    name: np.dtype(name).newbyteorder("<")
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
}

_MAGIC = b"3FSCKPT\0"
_HEADER = struct.Struct("<8sIQQQII")  # magic, version, chunk, index offset, index bytes, index crc, crc of all before
HEADER_BYTES = _HEADER.size
_UNCHECKED = _HEADER.size - 4


@dataclass(frozen=True, slots=True)
class Header:
    chunk_bytes: int
    index_offset: int
    index_bytes: int
    index_crc: int


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """Where an array is in the file and what it is."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    crc: int  # CRC32C of its bytes

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


def decode_header(content: bytes, where: str) -> Header:
    """Raises Corrupt, NotSupported."""
    if len(content) < HEADER_BYTES or content[: len(_MAGIC)] != _MAGIC:
        raise Corrupt(f"{where} is not a checkpoint, or was cut short")
    _, version, chunk_bytes, offset, size, index_crc, crc = _HEADER.unpack_from(content)
    if version != VERSION:
        raise NotSupported(f"{where} has format version {version}; this program reads version {VERSION}")
    if crc32c(content[:_UNCHECKED]) != crc:
        raise Corrupt(f"{where}: the header does not match its checksum")
    if size > MAX_INDEX_BYTES or offset + size > MAX_FILE_BYTES or not HEADER_BYTES <= chunk_bytes <= MAX_FILE_BYTES:
        raise Corrupt(f"{where}: the header is beyond the limits")
    return Header(chunk_bytes, offset, size, index_crc)


def decode_index(content: bytes, header: Header, where: str) -> dict[str, ArrayInfo]:
    """Raises Corrupt."""
    if len(content) != header.index_bytes:
        raise Corrupt(f"{where}: the index has {len(content)} of {header.index_bytes} bytes")
    if crc32c(content) != header.index_crc:
        raise Corrupt(f"{where}: the index does not match its checksum")
    try:
        rows = json.loads(content)["arrays"]
        arrays = [_array(row, header.index_offset) for row in rows]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Corrupt(f"{where}: the index is not valid: {error}") from None
    found = {array.name: array for array in arrays}
    if len(found) != len(arrays):
        raise Corrupt(f"{where}: the index names an array twice")
    return found


def _array(row: Any, end: int) -> ArrayInfo:
    name, dtype, shape, offset, crc = row
    if not isinstance(name, str) or dtype not in DTYPES:
        raise ValueError(f"an array of the type {dtype!r}")
    if len(shape) > MAX_DIMENSIONS or any(type(value) is not int or value < 0 for value in [*shape, offset, crc]):
        raise ValueError(f"array {name!r} has impossible numbers")
    array = ArrayInfo(name, dtype, tuple(shape), offset, crc)
    if offset + array.nbytes > end:
        raise ValueError(f"array {name!r} reaches beyond the data")
    return array


def read_index(fs: FileSystem, path: str) -> dict[str, ArrayInfo]:
    """The arrays of the file. Raises NotFound, Corrupt, NotSupported."""
    (content,) = fs.read_batch([(path, 0, HEADER_BYTES)])
    header = decode_header(bytes(content), path)
    (content,) = fs.read_batch([(path, header.index_offset, header.index_bytes)])
    return decode_index(bytes(content), header, path)


def load(fs: FileSystem, path: str, names: Iterable[str] | None = None) -> dict[str, NDArray[Any]]:
    """The arrays of these names, or all, each verified. Raises NotFound, Corrupt, NotSupported."""
    index = read_index(fs, path)
    wanted = list(index) if names is None else list(names)
    missing = sorted(set(wanted) - set(index))
    if missing:
        raise NotFound(f"{path} has no tensor {missing[0]!r}")
    arrays = {}
    for name in wanted:
        info = index[name]
        array = arrays[name] = np.empty(info.shape, DTYPES[info.dtype])
        parts = [
            (path, info.offset + at, min(_PART_BYTES, info.nbytes - at)) for at in range(0, info.nbytes, _PART_BYTES)
        ]
        content = bytes_of(array)
        places = [content[at - info.offset : at - info.offset + length] for _, at, length in parts]
        views = fs.read_batch(parts, into=places)
        if any(len(view) != length for view, (_, _, length) in zip(views, parts, strict=True)):
            raise Corrupt(f"{path} was cut short")
        if crc32c(content) != info.crc:
            raise Corrupt(f"tensor {name!r} of {path} does not match its checksum")
    return arrays
