"""Writes checkpoints of the first format, which is only read now."""

import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threefs_checkpoint import single_file
from threefs_checkpoint.single_file import ArrayInfo, Header

from threefs.checksums import crc32c

_ALIGNMENT_BYTES = 64


def lay_out(sizes: dict[str, int], chunk_bytes: int) -> tuple[dict[str, int], int]:
    """Offsets of arrays of these sizes, and where the index begins."""
    offsets: dict[str, int] = {}
    end = chunk_bytes  # the header has the first chunk for itself
    for name, size in sorted(sizes.items(), key=lambda item: item[1] < chunk_bytes):
        offsets[name] = _round_up(end, chunk_bytes if size >= chunk_bytes else _ALIGNMENT_BYTES)
        end = offsets[name] + size
    return offsets, _round_up(end, chunk_bytes)


def _round_up(offset: int, multiple: int) -> int:
    return -(-offset // multiple) * multiple


def encode_header(header: Header) -> bytes:
    content = struct.pack(
        "<8sIQQQI",
        b"3FSCKPT\0",
        single_file.VERSION,
        header.chunk_bytes,
        header.index_offset,
        header.index_bytes,
        header.index_crc,
    )
    return content + struct.pack("<I", crc32c(content))


def encode_index(arrays: Iterable[ArrayInfo]) -> bytes:
    rows = [[array.name, array.dtype, list(array.shape), array.offset, array.crc] for array in arrays]
    return json.dumps({"arrays": rows}).encode()


def encode(arrays: Mapping[str, NDArray[Any]], chunk_bytes: int) -> bytes:
    """The whole file."""
    contents = {name: np.ascontiguousarray(array).tobytes() for name, array in arrays.items()}
    offsets, end = lay_out({name: len(content) for name, content in contents.items()}, chunk_bytes)
    index = encode_index(
        ArrayInfo(name, arrays[name].dtype.name, arrays[name].shape, offsets[name], crc32c(content))
        for name, content in contents.items()
    )
    file = bytearray(end)
    for name, content in contents.items():
        file[offsets[name] : offsets[name] + len(content)] = content
    header = encode_header(Header(chunk_bytes, end, len(index), crc32c(index)))
    file[: len(header)] = header
    return bytes(file) + index
