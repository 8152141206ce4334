"""The bytes of a checkpoint file. Pure: no I/O here.

A header in a chunk of its own, then the arrays, then the index (JSON). An array of at least one chunk begins on a chunk
boundary, so each of its chunks is written by one write; smaller arrays share the chunks after them. Integers and arrays
are little-endian.
"""

import json
import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from threefs.checksums import crc32c
from threefs.errors import Corrupt, InvalidArgument, NotSupported

VERSION = 1
MAX_INDEX_BYTES = 64 << 20
MAX_NAME_BYTES = 4096
MAX_DIMENSIONS = 32
MAX_FILE_BYTES = 1 << 50
SMALL_ALIGNMENT_BYTES = 64

#: What an array may hold: plain numbers, never objects.
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


def dtype_name(name: str, dtype: np.dtype[Any]) -> str:
    """The name that the index has for the type of array `name`. Raises InvalidArgument."""
    if dtype.name not in DTYPES or DTYPES[dtype.name] != dtype:
        raise InvalidArgument(
            f"array {name!r} has the type {dtype}; a checkpoint holds little-endian {', '.join(DTYPES)}"
        )
    return dtype.name


def check_name(name: object) -> None:
    if not isinstance(name, str) or not 1 <= len(name.encode("utf-8", "surrogatepass")) <= MAX_NAME_BYTES:
        raise InvalidArgument(f"the name of an array must be text of 1 to {MAX_NAME_BYTES} bytes, not {name!r}")


def lay_out(sizes: dict[str, int], chunk_bytes: int) -> tuple[dict[str, int], int]:
    """Offsets of arrays of these sizes, in the order in which they stand in the file, and where the index begins."""
    offsets: dict[str, int] = {}
    end = chunk_bytes  # the header has the first chunk for itself: it is written last
    for name, size in sorted(sizes.items(), key=lambda item: item[1] < chunk_bytes):
        offsets[name] = _round_up(end, chunk_bytes if size >= chunk_bytes else SMALL_ALIGNMENT_BYTES)
        end = offsets[name] + size
    return offsets, _round_up(end, chunk_bytes)


def _round_up(offset: int, multiple: int) -> int:
    return -(-offset // multiple) * multiple


def encode_header(header: Header) -> bytes:
    content = _HEADER.pack(
        _MAGIC, VERSION, header.chunk_bytes, header.index_offset, header.index_bytes, header.index_crc, 0
    )[:_UNCHECKED]
    return content + struct.pack("<I", crc32c(content))


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


def encode_index(arrays: Iterable[ArrayInfo]) -> bytes:
    rows = [[array.name, array.dtype, list(array.shape), array.offset, array.crc] for array in arrays]
    content = json.dumps({"arrays": rows}, ensure_ascii=True, separators=(",", ":")).encode()
    if len(content) > MAX_INDEX_BYTES:
        raise InvalidArgument(f"the index of {len(rows)} arrays is larger than {MAX_INDEX_BYTES} bytes")
    return content


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
