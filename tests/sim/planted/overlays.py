"""Deferred changes: blobs that a record names are there, and a version shows its own ones only."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from threefs_storage.engine.block_files import BlockFiles
from threefs_storage.engine.chunk_record import Record
from threefs_storage.engine.chunk_writer import ChunkWriter
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.engine.group_commit import GroupCommit
from threefs_storage.engine.overlay import BlobKey, Overlay

from tests.sim.planted.registry import plant, plant_for, put
from threefs.ids import ChunkId

_ENGINE = "contract/test_chunk_engine_durability.py"


@plant_for(f"{_ENGINE}::test_long_lives")
def blobs_written_behind_the_flush() -> None:
    """The record is durable, the bytes that it names follow in a write that nobody flushes."""
    commit = GroupCommit.commit

    async def apart(
        self: GroupCommit, chunk: Any, record: Any, file: Any, writes: Any, blobs: Mapping[BlobKey, bytes], check: Any
    ) -> None:
        await commit(self, chunk, record, file, writes)
        if blobs:
            self._store._table.write({key.encoded(): data for key, data in blobs.items()})

    put(GroupCommit, "commit", apart)


@plant
def blobs_of_the_committed_version_are_given_up() -> None:
    """What a pending version overwrites is removed before that version is committed."""

    def newest(self: Record) -> Mapping[int, int]:
        version = self.pending or self.committed
        return {} if version is None or version.overlay is None else version.overlay.blobs

    put(Record, "blobs", property(newest))


@plant
def blob_number_used_again() -> None:
    """A change is written over the bytes of another one that is still named."""
    put(Record, "free_blob", lambda self, chunk: BlobKey(chunk, 1))


@plant
def cut_bytes_come_back() -> None:
    """Bytes of the block that a truncation has cut off show again when the chunk grows."""
    cut = Overlay.cut

    def shallow(self: Overlay, length: int) -> Overlay:
        return dataclasses.replace(cut(self, length), base_length=self.base_length)

    def unchecked(self: Overlay, length: int, *, has_block: bool) -> None:
        pass

    put(Overlay, "cut", shallow)
    put(Overlay, "check", unchecked)


@plant_for("unit/services/threefs_storage/engine/test_fold.py::test_a_chunk_with_a_pending_version_is_not_folded")
def fold_drops_what_is_pending() -> None:
    """A fold puts the record back that it began with: a version that is pending goes."""
    fold = ChunkEngine._fold

    async def blind(self: ChunkEngine, chunk: ChunkId) -> bool:
        self.drop_pending(chunk)
        return await fold(self, chunk)

    put(ChunkEngine, "_fold", blind)


@plant_for("unit/services/threefs_storage/engine/test_fold.py::test_a_fold_does_not_write_under_a_reader")
def fold_writes_under_a_reader() -> None:
    """A fold writes in place although a reader of an earlier version needs what was there."""
    put(BlockFiles, "is_pinned", lambda self, block: False)


@plant_for(f"{_ENGINE}::test_a_fold_in_place_waits_until_the_commit_is_durable")
def fold_of_a_commit_that_may_be_undone() -> None:
    """A fold writes in place although a crash may bring back the version before, which shows what was there."""
    fold = ChunkEngine._fold_committed

    async def hasty(self: ChunkEngine, *args: Any) -> Any:
        flush = self._store.flush

        async def later(number: int | None = None) -> None:
            if number is not None:
                await flush(number)

        self._store.flush = later  # type: ignore[method-assign]
        try:
            return await fold(self, *args)
        finally:
            self._store.flush = flush  # type: ignore[method-assign]

    put(ChunkEngine, "_fold_committed", hasty)


@plant_for(f"{_ENGINE}::test_an_append_does_not_overwrite_bytes_that_were_cut_off")
def append_over_cut_bytes() -> None:
    """An append is written over bytes of the version before a truncation, which a crash may bring back."""
    defer = ChunkWriter._defer

    async def trusting(self: ChunkWriter, *args: Any) -> Any:
        written = await defer(self, *args)
        self.torn.clear()
        return written

    put(ChunkWriter, "_defer", trusting)


@plant_for(f"{_ENGINE}::test_a_fold_frees_the_old_block_only_when_it_is_durable")
def fold_frees_the_block_first() -> None:
    """The block of a folded version is given to another chunk before the new record is durable."""
    fold = ChunkEngine._fold

    async def hasty(self: ChunkEngine, chunk: ChunkId) -> bool:
        version = (self.record(chunk) or Record()).committed
        if version is not None and version.block is not None and self._store.should_fold(version):
            self._free(version.block, 0)
            put(ChunkEngine, "_free_given_up", lambda self, before, after: None)
        return await fold(self, chunk)

    put(ChunkEngine, "_fold", hasty)
