"""The data file of one rank: copied chunk by chunk into the staging area, written from there, verified."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from threefs.checksums import crc32c
from threefs_checkpoint.file_layout import ChunkPlan, Fill, chunk_plans, lay_out, pieces_of
from threefs_checkpoint.filesystem_protocol import FileSystem
from threefs_checkpoint.index import StoredShard
from threefs_checkpoint.sharding import HeldShard
from threefs_checkpoint.slices import boxes, whole
from threefs_checkpoint.staging import StagingArea
from threefs_checkpoint.verification import verify_file

#: Bytes that are sent at a time. Enough for every storage process to have some.
BATCH_BYTES = 64 << 20

#: The memory of each shard, as its carrier; or what loads it.
Arrays = Mapping[HeldShard, NDArray[Any] | Callable[[], NDArray[Any]]]


class DataFile:
    def __init__(self, number: int, shards: Sequence[HeldShard], chunk_bytes: int) -> None:
        """`number` is that of the rank that writes it."""
        self.number = number
        self.shards = shards
        self._chunk_bytes = chunk_bytes
        self._sizes = [shard.nbytes for shard in shards]
        self._offsets, self.length = lay_out(self._sizes, chunk_bytes)
        self._plans = list(chunk_plans(self._offsets, self._sizes, chunk_bytes))

    def stage(self, area: StagingArea, arrays: Arrays) -> None:
        """Copy the arrays into the area, as chunks of the file."""
        sources = _Sources([arrays[shard] for shard in self.shards])
        for plan in self._plans:
            buffer = area.buffer()
            try:
                _fill(buffer, plan, sources)
            finally:  # the area gets it back, also from a copy that is broken off
                area.put(plan.number, buffer, plan.length)

    def write(self, fs: FileSystem, path: str, area: StagingArea) -> list[list[int]]:
        """Write what is staged to the new file `path`. Returns the checksums of the pieces of each shard."""
        crcs: list[list[int]] = [[] for _ in self.shards]
        if self._plans:
            with fs.open(path, "xb", chunk_bytes=self._chunk_bytes) as file:
                for batch in area.batches(BATCH_BYTES):
                    for chunk in batch:
                        for fill in self._plans[chunk.number].fills:
                            crcs[fill.shard].append(crc32c(chunk.content[fill.at : fill.at + fill.length]))
                    fs.write_batch([(file, chunk.number * self._chunk_bytes, chunk.content) for chunk in batch])
        return crcs

    def verify(self, fs: FileSystem, path: str, crcs: Sequence[Sequence[int]]) -> None:
        """Raise Corrupt unless storage has recorded what these checksums say."""
        if self._plans:
            stored = zip(self.stored(crcs), self._sizes, strict=True)
            pieces = [piece for shard, size in stored for piece in pieces_of(shard, size, self._chunk_bytes)]
            verify_file(fs, path, pieces, self.length, self._chunk_bytes)

    def stored(self, crcs: Sequence[Sequence[int]]) -> list[StoredShard]:
        """Where the shards lie, with the checksums of the pieces of each."""
        return [
            StoredShard(shard.part, self.number, offset, tuple(checksums))
            for shard, offset, checksums in zip(self.shards, self._offsets, crcs, strict=True)
        ]


class _Sources:
    """The memory of the shards, by number. Chunks are filled shard after shard: one is loaded at a time."""

    def __init__(self, arrays: Sequence[NDArray[Any] | Callable[[], NDArray[Any]]]) -> None:
        self._arrays = arrays
        self._loaded: tuple[int, NDArray[Any]] | None = None

    def __getitem__(self, number: int) -> NDArray[Any]:
        found = self._arrays[number]
        if isinstance(found, np.ndarray):
            return found
        if self._loaded is None or self._loaded[0] != number:
            self._loaded = None  # its memory is for the next one
            self._loaded = number, found()
        return self._loaded[1]


def _fill(buffer: memoryview, plan: ChunkPlan, sources: _Sources) -> None:
    chunk = np.frombuffer(buffer, np.uint8)
    end = 0
    for fill in plan.fills:
        chunk[end : fill.at] = 0
        end = fill.at + fill.length
        copy_elements(sources[fill.shard], fill, chunk[fill.at : end])
    chunk[end : plan.length] = 0


def copy_elements(source: NDArray[Any], fill: Fill, into: NDArray[np.uint8]) -> None:
    """Copy a range of an array's bytes, in row-major order, wherever they lie in memory."""
    if source.flags.c_contiguous:
        into[:] = source.reshape(-1).view(np.uint8)[fill.begin : fill.begin + fill.length]
        return
    itemsize = source.itemsize
    first = fill.begin // itemsize
    elements = into.view(source.dtype)
    for box, number in boxes(source.shape, first, first + fill.length // itemsize):
        part = elements[number - first : number - first + box.size].reshape(box.shape)
        part[...] = source[box.relative_to(whole(source.shape))]
