"""What is kept on disks: synced in the right order, in blocks that nobody else has, with checksums."""

import asyncio
import contextlib
from typing import Any

from threefs_storage.engine import chunk_reader as reader_module
from threefs_storage.engine import group_commit as committer_module
from threefs_storage.engine.block_allocator import BlockAllocator
from threefs_storage.engine.chunk_writer import ChunkWriter
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.engine.record_store import RecordStore

from tests.sim.planted.registry import Anything, plant, plant_for, put
from threefs.errors import ThreefsError


@plant
def record_not_flushed() -> None:
    """The record of a pending version is not synced before it is forwarded."""

    async def flush(self: RecordStore, number: int | None = None) -> None:
        await asyncio.sleep(0)

    put(RecordStore, "flush", flush)


@plant
def data_not_synced() -> None:
    """The record is durable, the bytes that it names are not."""

    async def sync(items: list[Any]) -> Exception | None:
        for item in items:
            for offset, parts in item.writes:
                await item.file.write(offset, parts)
        return None

    put(committer_module, "_sync", sync)


@plant
def checksums_not_checked() -> None:
    """I12: bytes are served as they lie on the disk."""
    put(reader_module, "expected_checksum", lambda version, begin, end: Anything(0))


@plant_for("contract/test_chunk_engine_durability.py::test_a_block_is_not_reused_before_it_is_durably_given_up")
def block_reused_at_once() -> None:
    """A block is given to another chunk before the record that gave it up is durable."""
    reclaim = BlockAllocator._reclaim
    put(BlockAllocator, "_reclaim", lambda self, durable: reclaim(self, 1 << 60))


@plant
def pinned_block_reused() -> None:
    """A block is written over while somebody reads it."""
    put(BlockAllocator, "pin", lambda self, slot: None)
    put(BlockAllocator, "unpin", lambda self, slot: None)


@plant
def block_not_given_back() -> None:
    """The block of the version before stays in use for ever."""
    free = ChunkEngine._free

    def forgetful(self: ChunkEngine, block: Any, number: int) -> None:
        if block.slot % 4:
            free(self, block, number)

    put(ChunkEngine, "_free", forgetful)


@plant_for(
    "contract/test_chunk_engine_durability.py::test_an_append_does_not_overwrite_a_dropped_one_that_a_crash_may_bring_back"
)
def append_behind_a_dropped_one() -> None:
    """An append is written over the bytes of one that was dropped, which a crash may bring back."""
    write = ChunkWriter.write

    async def trusting(self: ChunkWriter, *args: Any) -> Any:
        self.torn.clear()
        return await write(self, *args)

    put(ChunkWriter, "write", trusting)


@plant
def written_in_place() -> None:
    """A change is written over the committed version instead of beside it."""
    take = ChunkWriter._take_block
    place = ChunkWriter._write_new_block

    async def over(self: ChunkWriter, old: Any, *rest: Any) -> Any:
        async def same(writer: ChunkWriter, bits: int, *, reserve: bool) -> Any:
            if old is not None and old.block is not None and old.block.bits == bits:
                return old.block
            return await take(writer, bits, reserve=reserve)

        put(ChunkWriter, "_take_block", same)
        try:
            return await place(self, old, *rest)
        finally:
            put(ChunkWriter, "_take_block", take)

    put(ChunkWriter, "_write_new_block", over)


@plant
def commit_not_ordered() -> None:
    """The record is written before the bytes that it names are synced."""
    commit = committer_module.GroupCommit._commit

    async def hasty(self: Any, batch: list[Any]) -> None:
        blobs = {key: data for item in batch for key, data in item.blobs.items()}
        number = self._store.write({item.chunk: item.record for item in batch}, blobs)
        await self._store.flush(number)
        with contextlib.suppress(ThreefsError):
            await commit(self, batch)

    put(committer_module.GroupCommit, "_commit", hasty)
