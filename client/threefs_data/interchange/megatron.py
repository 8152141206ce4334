"""Megatron's indexed datasets: tokens one after the other in `NAME.bin`, and `NAME.idx`, which has the length and the
place of each sequence. All integers are little-endian.

The index: magic, version (8 bytes), type of the tokens (1), numbers of sequences and of document bounds (8 each); then
the lengths in tokens (4 bytes each), the places in bytes (8), and the number of the first sequence of each document
(8), with one more for the end.
"""

import os
import struct
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from threefs.errors import Corrupt, InvalidArgument, NotSupported
from threefs_data.interchange.exchange_directory import Directory

NAME = "tokens"
MAX_SEQUENCE_BYTES = 1 << 30

_HEADER = struct.Struct("<9sQBQQ")
_MAGIC = b"MMIDIDX\0\0"
_VERSION = 1
_CODES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 8: "uint16"}
_MAX_INT32 = (1 << 31) - 1
_PAGE = 1 << 16  # rows of the index that are in memory


@dataclass(frozen=True, slots=True)
class IndexHeader:
    dtype: str
    sequences: int
    bounds: int  # of documents


def write(directory: Directory, samples: Iterable[NDArray[Any]], dtype: str) -> int:
    """A sequence and document for each sample; the number of them. uint32, which Megatron has not, becomes int32."""
    stored = "int32" if dtype == "uint32" else dtype
    count = 0
    with tempfile.TemporaryFile() as lengths, directory.create(f"{NAME}.bin") as data:
        for tokens in samples:
            if dtype == "uint32" and tokens.size and int(tokens.max()) > _MAX_INT32:
                raise InvalidArgument(f"token {tokens.max()} of sample {count} is larger than Megatron's {_MAX_INT32}")
            data.write(tokens.astype(f"<{np.dtype(stored).str[1:]}", copy=False).tobytes())
            lengths.write(struct.pack("<i", len(tokens)))
            count += 1
        with directory.create(f"{NAME}.idx") as index:
            _write_index(index, lengths, IndexHeader(stored, count, count + 1))
    return count


def _write_index(index: BinaryIO, lengths: Any, header: IndexHeader) -> None:
    code = next(code for code, dtype in _CODES.items() if dtype == header.dtype)
    index.write(_HEADER.pack(_MAGIC, _VERSION, code, header.sequences, header.bounds))
    lengths.seek(0)
    while page := lengths.read(4 * _PAGE):
        index.write(page)
    lengths.seek(0)
    place, size = 0, np.dtype(header.dtype).itemsize
    while page := lengths.read(4 * _PAGE):
        ends = place + np.cumsum(np.frombuffer(page, "<i4").astype(np.int64) * size)
        index.write(np.concatenate([[place], ends[:-1]]).astype("<i8").tobytes())
        place = int(ends[-1])
    for first in range(0, header.bounds, _PAGE):
        index.write(np.arange(first, min(first + _PAGE, header.bounds), dtype="<i8").tobytes())


def read_header(directory: Directory, name: str) -> IndexHeader:
    """Raises NotFound, Corrupt, NotSupported."""
    where = directory.place(f"{name}.idx")
    with directory.open(f"{name}.idx") as index:
        content = index.read(_HEADER.size)
    if len(content) < _HEADER.size or not content.startswith(_MAGIC):
        raise Corrupt(f"{where} is not an index of Megatron")
    _, version, code, sequences, bounds = _HEADER.unpack(content)
    if version != _VERSION:
        raise NotSupported(f"{where} has version {version}; this program reads version {_VERSION}")
    if code not in _CODES:
        raise NotSupported(f"{where} has tokens of type {code}, which are no whole numbers")
    return IndexHeader(_CODES[code], sequences, bounds)


def read(directory: Directory, name: str) -> Iterator[NDArray[Any]]:
    """The sequences in order. Raises NotFound, Corrupt, NotSupported."""
    header = read_header(directory, name)
    where = directory.place(f"{name}.idx")
    dtype = np.dtype(header.dtype).newbyteorder("<")
    with directory.open(f"{name}.idx") as index, directory.open(f"{name}.bin") as data:
        end = data.seek(0, os.SEEK_END)
        total = 0
        for lengths, places in _pages(index, header, where):
            for length, place in zip(lengths.tolist(), places.tolist(), strict=True):
                if not 0 <= length * dtype.itemsize <= MAX_SEQUENCE_BYTES or place < 0:
                    raise Corrupt(f"{where} has a sequence of {length} tokens at byte {place}")
                if place + length * dtype.itemsize > end:
                    raise Corrupt(f"{directory.place(name)}.bin ends before {length} tokens at byte {place} do")
                total += length * dtype.itemsize
                if total > end:  # else a short index is a dataset of any size
                    raise Corrupt(f"{where} has sequences that overlap: {total} bytes of {end}")
                if data.tell() != place:
                    data.seek(place)
                content = data.read(length * dtype.itemsize)
                yield np.frombuffer(content, dtype)


def _pages(index: BinaryIO, header: IndexHeader, where: str) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]]:
    for first in range(0, header.sequences, _PAGE):
        count = min(_PAGE, header.sequences - first)
        lengths = _column(index, _HEADER.size + 4 * first, 4 * count, where)
        places = _column(index, _HEADER.size + 4 * header.sequences + 8 * first, 8 * count, where)
        yield np.frombuffer(lengths, "<i4"), np.frombuffer(places, "<i8")


def _column(index: BinaryIO, offset: int, size: int, where: str) -> bytes:
    if offset + size > index.seek(0, os.SEEK_END):
        raise Corrupt(f"{where} is cut short")
    index.seek(offset)
    return index.read(size)
