"""Spill files: the tokens of one split, in the order of the input, until the samples are put into their final order.

A file contains the tokens, a table, and a trailer. For samples that are documents the table has the number of tokens up
to the end of each (8 bytes); for sequences with document starts, one bit for each token; otherwise nothing.
"""

import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from threefs.checksums import crc32c
from threefs.errors import Corrupt
from threefs_data.filesystem_protocol import FileSystem
from threefs_data.token_format import TokenFormat

TRAILER = struct.Struct("<8sQQI")  # magic, documents, tokens, checksum of the trailer before it
_MAGIC = b"3FSSPILL"
_WRITE_BYTES = 4 << 20
_OFFSET_BYTES = 8
#: Samples are read in batches up to this: for each task that runs, twice as much is in memory.
READ_BYTES = 16 << 20
READ_SAMPLES = 4096

#: Tables of documents up to this are read as a whole, larger ones by the row.
TABLES_BYTES = 32 << 20

Row = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Spill:
    path: str
    documents: int
    tokens: int


class SpillWriter:
    """Appends documents to a spill file."""

    def __init__(self, fs: FileSystem, path: str, token_format: TokenFormat) -> None:
        self.documents = 0
        self.tokens = 0
        self._format = token_format
        self._file = fs.open(path, "wb")
        self._pending = bytearray()
        self._ends = array("Q")
        end = token_format.end_of_document
        self._end_of_document = b"" if end is None else np.array([end], token_format.numpy_dtype).tobytes()

    def add(self, ids: NDArray[np.integer]) -> None:
        """The tokens of a document, which fit the format."""
        self._pending += ids.astype(self._format.numpy_dtype, copy=False).tobytes()
        self._pending += self._end_of_document
        self.tokens += len(ids) + bool(self._end_of_document)
        self.documents += 1
        if not self._format.sequence_length or self._format.document_starts:
            self._ends.append(self.tokens)
        if len(self._pending) >= _WRITE_BYTES:
            self._write_pending()

    def finish(self) -> None:
        """Write table and trailer, and close the file."""
        self._write_pending()
        self._pending += self._table()
        head = TRAILER.pack(_MAGIC, self.documents, self.tokens, 0)
        self._pending += TRAILER.pack(_MAGIC, self.documents, self.tokens, crc32c(head))
        self._write_pending()
        self._file.close()

    def close(self) -> None:
        """Give up: the file is no spill file."""
        self._file.close()

    def _table(self) -> bytes:
        ends = np.frombuffer(self._ends, np.uint64)
        if not self._format.sequence_length:
            return ends.astype("<u8").tobytes()
        if not self._format.document_starts:
            return b""
        starts = np.concatenate([np.zeros(1, np.uint64), ends])
        starts = starts[starts < self.tokens].astype(np.int64)  # empty documents at the end begin with no token
        bits = np.zeros(-(-self.tokens // 8), np.uint8)
        np.bitwise_or.at(bits, starts >> 3, (1 << (starts & 7)).astype(np.uint8))
        return bits.tobytes()

    def _write_pending(self) -> None:
        self._file.write(bytes(self._pending))
        self._pending.clear()


def read_counts(fs: FileSystem, paths: Sequence[str]) -> list[Spill | None]:
    """Of the spill files that exist; None for others."""
    found = fs.stat_many(paths)
    there = [(path, row.length) for path, row in zip(paths, found, strict=True) if row is not None]
    views = fs.read_batch([(path, max(0, length - TRAILER.size), TRAILER.size) for path, length in there])
    spills = {path: _decode_trailer(bytes(view), path) for (path, _), view in zip(there, views, strict=True)}
    return [spills.get(path) for path in paths]


def _decode_trailer(content: bytes, path: str) -> Spill:
    if len(content) == TRAILER.size:
        magic, documents, tokens, crc = TRAILER.unpack(content)
        if magic == _MAGIC and crc == crc32c(TRAILER.pack(magic, documents, tokens, 0)):
            return Spill(path, documents, tokens)
    raise Corrupt(f"{path} is not a spill file; remove it, and start again")


class SpilledSamples:
    """The samples in the spill files of a job, by their numbers in the order of the input."""

    def __init__(
        self,
        fs: FileSystem,
        spills: Sequence[Spill],
        token_format: TokenFormat,
        *,
        tables_bytes: int = TABLES_BYTES,
    ) -> None:
        self._fs = fs
        self._spills = spills
        self._tables_bytes = tables_bytes
        self._format = token_format
        counts = [spill.tokens if token_format.sequence_length else spill.documents for spill in spills]
        #: number of the first token (for sequences), or document, of each spill file
        self._firsts = np.cumsum([0, *counts], dtype=np.int64)
        self._ends: NDArray[np.int64] | None = None  # of all documents, once they are read

    def __len__(self) -> int:
        return int(self._firsts[-1]) // (self._format.sequence_length or 1)

    def read(self, numbers: NDArray[np.integer]) -> Iterator[bytes | memoryview]:
        """Samples in the order of `numbers`, read in large batches."""
        for start in range(0, len(numbers), READ_SAMPLES):
            part = numbers[start : start + READ_SAMPLES].astype(np.int64)
            yield from self._sequences(part) if self._format.sequence_length else self._documents(part)

    def _documents(self, numbers: NDArray[np.int64]) -> Iterator[memoryview]:
        size = self._format.token_bytes
        owners = np.searchsorted(self._firsts, numbers, side="right") - 1
        starts, ends = self._bounds(numbers, owners)
        rows: list[Row] = []
        waiting = 0
        for owner, start, end in zip(owners.tolist(), starts.tolist(), ends.tolist(), strict=True):
            spill = self._spills[owner]
            if not 0 <= start <= end <= spill.tokens:
                raise Corrupt(f"{spill.path}: a document from {start} to {end} has no place in {spill.tokens} tokens")
            if rows and waiting + (end - start) * size > READ_BYTES:
                yield from self._read(rows)
                rows, waiting = [], 0
            rows.append((spill.path, start * size, (end - start) * size))
            waiting += (end - start) * size
        yield from self._read(rows)

    def _bounds(
        self, numbers: NDArray[np.int64], owners: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first token of each document in its spill file, and the end."""
        places = numbers - self._firsts[owners]
        if _OFFSET_BYTES * len(self) <= self._tables_bytes:
            if self._ends is None:
                self._ends = self._read_tables()
            return np.where(places == 0, 0, self._ends[numbers - 1]), self._ends[numbers]
        befores = np.maximum(places - 1, 0)  # where the document before ends
        rows = [
            self._table_row(owner, before, place - before + 1)
            for owner, before, place in zip(owners.tolist(), befores.tolist(), places.tolist(), strict=True)
        ]
        pairs = [np.frombuffer(view, "<i8") for view in self._read(rows)]
        before_ends = np.array([int(pair[0]) for pair in pairs], np.int64)
        return np.where(places == 0, 0, before_ends), np.array([int(pair[-1]) for pair in pairs], np.int64)

    def _read_tables(self) -> NDArray[np.int64]:
        """The ends of all documents."""
        rows = [self._table_row(owner, 0, spill.documents) for owner, spill in enumerate(self._spills)]
        return np.concatenate([np.frombuffer(view, "<i8") for view in self._read(rows)]).astype(np.int64)

    def _table_row(self, owner: int, first: int, count: int) -> Row:
        spill = self._spills[owner]
        table = spill.tokens * self._format.token_bytes
        return spill.path, table + _OFFSET_BYTES * first, _OFFSET_BYTES * count

    def _sequences(self, numbers: NDArray[np.int64]) -> Iterator[bytes]:
        at_once = max(1, READ_BYTES // self._format.sample_bytes)
        for start in range(0, len(numbers), at_once):
            ranges = [self._ranges(number) for number in numbers[start : start + at_once].tolist()]
            flat = [one for parts in ranges for one in parts]
            tokens = iter(self._read([self._token_row(*one) for one in flat]))
            bits = iter(self._read([self._start_row(*one) for one in flat]) if self._format.document_starts else ())
            for parts in ranges:
                sample = b"".join(next(tokens) for _ in parts)
                yield sample + self._packed_starts(parts, bits) if self._format.document_starts else sample

    def _ranges(self, number: int) -> list[tuple[int, int, int]]:
        """(spill file, first token in it, tokens) of a sequence: it may go over the ends of spill files."""
        position = number * self._format.sequence_length
        end = position + self._format.sequence_length
        found = []
        owner = int(np.searchsorted(self._firsts, position, side="right")) - 1
        while position < end:
            count = min(end, int(self._firsts[owner + 1])) - position
            if count:
                found.append((owner, position - int(self._firsts[owner]), count))
            position += count
            owner += 1
        return found

    def _token_row(self, owner: int, first: int, count: int) -> Row:
        size = self._format.token_bytes
        return self._spills[owner].path, first * size, count * size

    def _start_row(self, owner: int, first: int, count: int) -> Row:
        spill = self._spills[owner]
        table = spill.tokens * self._format.token_bytes
        return spill.path, table + first // 8, (first + count + 7) // 8 - first // 8

    def _packed_starts(self, parts: list[tuple[int, int, int]], views: Iterator[memoryview]) -> bytes:
        bits = [
            np.unpackbits(np.frombuffer(next(views), np.uint8), bitorder="little")[first % 8 : first % 8 + count]
            for _, first, count in parts
        ]
        return np.packbits(np.concatenate(bits), bitorder="little").tobytes()

    def _read(self, rows: list[Row]) -> Sequence[memoryview]:
        views = self._fs.read_batch(rows) if rows else []
        for view, (path, offset, length) in zip(views, rows, strict=True):
            if len(view) != length:
                raise Corrupt(f"{path} ends within {length} bytes at {offset}; remove it, and start again")
        return views
