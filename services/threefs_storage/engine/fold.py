"""Folding: the content of a committed version with an overlay is written to where it should be without one.

Reads need no blobs then. The version and its content stay the same.

A fold writes in place where it can: into the parts of the block that the extents of the overlay hide, and behind the
base. Otherwise it writes a new block, or one blob if the content is small.
"""

from dataclasses import replace

from threefs.env.disk import Write
from threefs_storage.engine.block_files import BlockFiles
from threefs_storage.engine.chunk_reader import DIRECT_FROM_BYTES
from threefs_storage.engine.chunk_record import Version
from threefs_storage.engine.chunk_writer import ChunkWriter, Written
from threefs_storage.engine.content_plan import ContentPlan, Kind, Update, replacement
from threefs_storage.engine.overlay import BlobKey
from threefs_storage.engine.record_store import RecordStore


class ChunkFolder:
    def __init__(self, writer: ChunkWriter, files: BlockFiles, store: RecordStore) -> None:
        self._writer = writer
        self._files = files
        self._store = store

    async def fold(self, blob: BlobKey, version: Version, *, reserve: bool) -> Written:
        """The record of the version must be durable, for its block may be written in place. `blob` is free for it.
        With `reserve` it may use the reserve of the disk. Raises as `ChunkWriter.write` does."""
        if self._fits_in_place(version):
            return await self._write_in_place(version)
        length = version.length
        content = await self._writer.scratch.take(length)
        try:
            await self._writer.read_old(version, 0, content[:length])
            whole = ContentPlan(length, 0, 0, length)
            update = replacement(version)
            written = await self._writer.write_whole(blob, None, update, whole, content[:length], reserve)
            return replace(written, counts=False)
        finally:
            self._writer.scratch.give(content)

    def should_precede(self, version: Version, update: Update) -> bool:
        """Whether the version should be folded before this small change, which would bring its overlay beyond the
        bounds, and whether that costs less than a new block."""
        limits, overlay = self._store.limits, version.overlay
        if overlay is None or update.kind != Kind.WRITE or update.length > limits.deferred_bytes or version.lost:
            return False
        if overlay.count + 2 <= limits.extents and overlay.stored_bytes + update.length <= limits.stored_bytes:
            return False
        more = overlay.written(update.offset, update.length, 0)  # a number that no blob has
        is_full = more.count > limits.extents or more.stored_bytes > limits.stored_bytes
        return is_full and self._fits_in_place(version)

    def _fits_in_place(self, version: Version) -> bool:
        """A reader of an earlier version may still need what the extents hide of the block."""
        block = version.block
        return (
            block is not None
            and self._store.limits.inline_bytes < version.length <= 1 << block.bits
            and (version.length == version.base_length or block not in self._writer.torn)
            and not self._files.is_pinned(block)
        )

    async def _write_in_place(self, version: Version) -> Written:
        block, overlay, base = version.block, version.overlay, version.base_length
        assert block is not None and overlay is not None, "only a version that fits is folded in place"
        assert base <= version.length <= 1 << block.bits, "the content has room in the block"
        file, place = self._files.file(block), block.slot << block.bits
        folded = replace(version, overlay=None)
        writes: list[Write] = []
        for begin, end in overlay.covered(0, base):
            content = bytearray(end - begin)
            await self._writer.read_old(version, begin, memoryview(content))
            writes.append((place + begin, [content]))
        if base == version.length:
            return Written(folded, file, writes, counts=False)
        moved = await self._writer.scratch.take(version.length - base)
        try:
            tail = moved[: version.length - base]
            await self._writer.read_old(version, base, tail)
            if len(tail) < DIRECT_FROM_BYTES:
                writes.append((place + base, [bytes(tail)]))
            else:
                await self._writer.write_behind(folded, place + base, [tail])
        finally:
            self._writer.scratch.give(moved)
        return Written(folded, file, writes, counts=False)
