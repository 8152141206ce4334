"""Reads samples of a dataset by their numbers, many at a time."""

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from threefs.env import loop_thread
from threefs.errors import Corrupt, InvalidArgument, NotFound
from threefs_data import format
from threefs_data.filesystem_protocol import File, FileSystem
from threefs_data.location import Location, sample_numbers
from threefs_data.tables import PagedTables, Tables, WholeTables

TABLES_BYTES = 256 << 20

#: Shards that are kept open beyond those of one batch. An open file costs some KiB here, and nothing at the services.
_MAX_OPEN_SHARDS = 16_384

_LENGTHS_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class _OpenShard:
    file: File
    chunk_bytes: int


class Dataset:
    """Samples 0 .. len - 1 in the order in which they were packed. Also works as a map-style dataset of PyTorch.

    Shards are opened, and parts of their tables read, when they are first needed. At most `tables_bytes` of tables are
    kept, beyond those that the current batch needs. Threads may share it, and a forked child goes on with it.
    """

    def __init__(self, fs: FileSystem, path: str, *, tables_bytes: int = TABLES_BYTES) -> None:
        """Raises NotFound, Corrupt, NotSupported."""
        self.path = path.rstrip("/")
        self.fs = fs
        where = f"{self.path}/{format.INDEX_NAME}"
        try:
            with fs.open(where, "rb") as file:
                content = file.read(format.MAX_INDEX_BYTES + 1)
                self._inode = file.inode
        except NotFound:
            raise NotFound(f"{self.path} is no dataset: there is no file {where}") from None
        self.index = format.decode_index(content, where)
        #: Identifies the samples and their order.
        self.fingerprint = self.index.fingerprint
        # numbers of the first sample of each shard, and of the sample after the last
        self._firsts = np.cumsum([0] + [shard.samples for shard in self.index.shards], dtype=np.int64)
        self._tables_bytes = tables_bytes
        self._forget()
        self._lock = loop_thread.new_lock()  # held while open shards and tables change
        self._generation = loop_thread.generation()

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the dataset anew."""
        return reopen, (self.fs, self.path, self._tables_bytes, self.fingerprint)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def __getitem__(self, number: int) -> bytes:
        return bytes(self.read([number])[0])

    def __getitems__(self, numbers: Sequence[int]) -> list[bytes]:
        return [bytes(sample) for sample in self.read(numbers)]

    def lengths(self) -> NDArray[np.int64]:
        """The bytes of every sample. Reads all tables, and needs 8 bytes of memory for each sample."""
        parts = [
            self.locate(range(first, min(first + _LENGTHS_AT_ONCE, len(self)))).lengths
            for first in range(0, len(self), _LENGTHS_AT_ONCE)
        ]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def batch_bytes(self, samples: int) -> int:
        """About the bytes that the samples of a batch have; exactly these if all samples have one length."""
        fixed = max((shard.sample_bytes for shard in self.index.shards if not shard.has_lengths), default=0)
        tabled = [shard for shard in self.index.shards if shard.has_lengths]
        mean = sum(shard.data_bytes for shard in tabled) / (sum(shard.samples for shard in tabled) or 1)
        return samples * max(fixed, math.ceil(mean * 1.25))  # most batches are at most a quarter above the mean

    def close(self) -> None:
        """Close the shards; they are opened again when needed."""
        with self._own_lock():
            self._close_shards()

    def read(self, numbers: Sequence[int]) -> list[memoryview]:
        """The samples of these numbers, verified, by one batch of reads. Raises InvalidArgument, Corrupt."""
        location = self.locate(numbers)
        return self.read_into(location, np.empty(location.nbytes, np.uint8).data)

    def locate(self, numbers: Sequence[int]) -> Location:
        """Where these samples lie. Reads parts of tables if need be. Raises InvalidArgument, Corrupt."""
        wanted = sample_numbers(numbers, len(self), self.path)
        owners = np.searchsorted(self._firsts, wanted, side="right") - 1
        with self._own_lock():
            self._open_shards(owners)
            starts, lengths, crcs = self.tables.find(owners, wanted - self._firsts[owners])
            shards = [self._open[owner] for owner in owners.tolist()]
        return Location(
            numbers=wanted,
            files=[shard.file for shard in shards],
            starts=starts,
            lengths=lengths,
            chunk_bytes=np.array([shard.chunk_bytes for shard in shards], np.int64),
            crcs=crcs,
            file_name=lambda index: _shard_path(self.path, int(owners[index])),
        )

    def read_into(self, location: Location, buffer: memoryview) -> list[memoryview]:
        """The samples at this location, verified. They are parts of the buffer. Raises Corrupt."""
        return read_into(self.fs, location, buffer)

    def _forget(self) -> None:
        self._open: OrderedDict[int, _OpenShard] = OrderedDict()
        kind = WholeTables if self.index.version == 1 else PagedTables
        # They do not refer to this object, so its files are closed as soon as a program has dropped it.
        read, name = partial(_read_ranges, self.fs, self._open), partial(_shard_path, self.path)
        self.tables: Tables = kind(self.index, read, name, self._tables_bytes)

    def _own_lock(self) -> AbstractContextManager[object]:
        """The lock of this process. A forked child has one of its own: nobody there gives back that of its parent."""
        if self._generation != loop_thread.generation():
            with loop_thread.process_lock():
                shards = self._open
                if self._generation != loop_thread.generation():  # else another thread was faster
                    if self._lock.locked():  # a thread of the parent was in the midst of a change
                        self._forget()
                    self._lock = loop_thread.new_lock()
                    self._generation = loop_thread.generation()  # last, as another thread relies on the rest
            del shards  # files that are forgotten close themselves, which may take the lock of the process as well
        return self._lock

    def _close_shards(self) -> None:
        while self._open:
            self._open.popitem()[1].file.close()

    def _open_shards(self, owners: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        """Open these shards, and close the least recently used ones beyond the limit."""
        needed = np.unique(owners).tolist()
        missing = [number for number in needed if number not in self._open]
        if missing:
            names = [_shard_path(self.path, number) for number in missing]
            headers = self.fs.read_batch([(name, 0, format.SHARD_HEADER_BYTES) for name in names])
            for number, name, header, found in zip(missing, names, headers, self.fs.stat_many(names), strict=True):
                format.check_shard_header(bytes(header), number, self.index.version, name)
                if found is None:
                    raise NotFound(f"there is no file {name!r}")
                self._open[number] = _OpenShard(self.fs.open(name, "rb"), found.layout.chunk_bytes)
            self._check_in_place()
        for number in needed:
            self._open.move_to_end(number)
        while len(self._open) > max(len(needed), _MAX_OPEN_SHARDS):
            self._open.popitem(last=False)[1].file.close()

    def _check_in_place(self) -> None:
        """After shards were opened: they are of this dataset if it still has its path."""
        try:
            with self.fs.open(f"{self.path}/{format.INDEX_NAME}", "rb") as file:
                is_ours = file.inode == self._inode
        except NotFound:
            is_ours = False
        if not is_ours:
            self._close_shards()
            raise _replaced(self.path)


def _shard_path(dataset: str, shard: int) -> str:
    return f"{dataset}/{format.shard_name(shard)}"


def _read_ranges(
    fs: FileSystem, shards: Mapping[int, _OpenShard], rows: list[tuple[int, int, int]]
) -> Sequence[memoryview]:
    return fs.read_batch([(shards[shard].file, offset, length) for shard, offset, length in rows])


def read_into(fs: FileSystem, location: Location, buffer: memoryview) -> list[memoryview]:
    """The samples at this location, verified. They are parts of the buffer. Raises Corrupt."""
    buffer = buffer[: location.nbytes]
    rows = location.rows()
    if not rows:
        return []
    views = fs.read_batch(rows, into=buffer)
    if sum(map(len, views)) != location.nbytes:
        short = next(row for row, view in zip(rows, views, strict=True) if len(view) != row[2])
        name = location.file_name(location.files.index(short[0]))
        raise Corrupt(f"{name} ends before {short[1] + short[2]} bytes, where a sample ends")
    return location.check(buffer)


def reopen(fs: FileSystem, path: str, tables_bytes: int, fingerprint: str) -> Dataset:
    """The dataset that had this fingerprint. Raises InvalidArgument if another one has its path."""
    dataset = Dataset(fs, path, tables_bytes=tables_bytes)
    if dataset.fingerprint != fingerprint:
        raise _replaced(path)
    return dataset


def _replaced(path: str) -> InvalidArgument:
    return InvalidArgument(
        f"{path} was removed or replaced while it was in use: what is there now is another dataset; open it anew"
    )
