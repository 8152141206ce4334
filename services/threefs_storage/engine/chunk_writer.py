"""Writing the content of a new version into a block."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from threefs.checksums import CRC_BYTES, block_crcs, checksum_block_bytes, combine, crc32c
from threefs.env.buffers import BufferPool
from threefs.env.disk import DIRECT_BYTES, File, Write, is_aligned
from threefs.errors import ChecksumMismatch, CorruptChunk, DiskFailed, NoSpace
from threefs_storage.engine.block_files import BlockFiles, block_bits
from threefs_storage.engine.chunk_reader import DIRECT_FROM_BYTES, ChunkReader
from threefs_storage.engine.content_plan import ContentPlan, Kind, Update, extended_checksums
from threefs_storage.engine.record_store import RecordStore
from threefs_storage.engine.records import Block, Version
from threefs_storage.engine.scratch import Scratch

#: The next block of a chunk that grows by appends has room for this many times its content.
_GROWTH_FACTOR = 4
#: Bytes of scratch buffers for chunks that are assembled from old and new content, per target.
SCRATCH_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class Written:
    """A version with its content in a block. The group commit makes it durable, and does the writes of small
    content."""

    version: Version
    file: File | None = None
    writes: Sequence[Write] = field(default=())
    fresh: Block | None = None  # the block that was taken for it


class ChunkWriter:
    def __init__(self, files: BlockFiles, store: RecordStore, reader: ChunkReader, buffers: BufferPool) -> None:
        self._files = files
        self._store = store
        self._reader = reader
        self._buffers = buffers
        self._scratch = Scratch(buffers, SCRATCH_BYTES)
        #: Blocks with bytes of a dropped version after the committed ones. A crash may bring that version back, so its
        #: bytes must not be overwritten.
        self.torn: set[Block] = set()

    async def write(self, old: Version | None, update: Update, plan: ContentPlan, payload: memoryview) -> Written:
        """Raises ChecksumMismatch (of the payload), NoSpace, CorruptChunk (of the old content), DiskFailed."""
        size = checksum_block_bytes(update.chunk_bytes)
        if plan.length == 0:
            removed = update.kind == Kind.REMOVE or update.removed
            return Written(_version(update, 0, b"", 0, None, size, removed))
        if not plan.whole and len(payload) and crc32c(payload) != update.checksum:
            raise _mismatch(update)
        if old is not None and self._can_append(old, plan, size):
            return await self._append(old, update, plan, payload)
        if plan.whole:
            return await self._write_new_block(old, update, plan, payload)
        content = await self._scratch.take(plan.length)
        try:
            await self._assemble(old, plan, payload, content[: plan.length])
            return await self._write_new_block(old, update, plan, content[: plan.length])
        finally:
            self._scratch.give(content, plan.length)

    def _can_append(self, old: Version, plan: ContentPlan, size: int) -> bool:
        block = old.block
        return (
            block is not None
            and plan.appends(old.length)
            and plan.length <= 1 << block.bits
            and size == old.checksum_block_bytes
            and block not in self.torn
        )

    async def _append(self, old: Version, update: Update, plan: ContentPlan, payload: memoryview) -> Written:
        """Write into the block of the committed version, after its bytes: they and their checksums stay valid."""
        block = old.block
        assert block is not None
        zeros = bytes(plan.length - old.length - len(payload))
        crcs, checksum = extended_checksums(old, zeros, payload)
        version = _version(update, plan.length, crcs, checksum, block, old.checksum_block_bytes)
        if plan.length == old.length:
            return Written(version)
        file, place = self._files.file(block), (block.slot << block.bits) + old.length
        parts = [part for part in (zeros, payload) if len(part)]
        if plan.length - old.length < DIRECT_FROM_BYTES:
            return Written(version, file, [(place, parts)])
        if zeros or place % DIRECT_BYTES:
            await file.write(place, parts)
        else:
            await self._write_large(file, place, payload)
        return Written(version, file)

    async def _write_new_block(
        self, old: Version | None, update: Update, plan: ContentPlan, content: memoryview
    ) -> Written:
        """Write into a new block."""
        size = checksum_block_bytes(update.chunk_bytes)
        crcs = block_crcs(content, size)
        checksum = combine(crcs, size, (len(content) - 1) % size + 1)
        if plan.whole and checksum != update.checksum:
            raise _mismatch(update)
        bits = block_bits(len(content))
        if old is not None and old.length and plan.appends(old.length):
            bits = max(bits, min(block_bits(update.chunk_bytes), block_bits(_GROWTH_FACTOR * len(content))))
        shrinks = old is not None and len(content) <= old.length and update.kind == Kind.TRUNCATE
        block = await self._take_block(bits, reserve=update.admitted or update.kind == Kind.REPLACE or shrinks)
        version = _version(update, plan.length, crcs, checksum, block, size)
        file, place = self._files.file(block), block.slot << block.bits
        if len(content) < DIRECT_FROM_BYTES:
            return Written(
                version, file, [(place, [bytes(content)])], block
            )  # a copy, because the content may be in a scratch buffer
        try:
            await self._write_large(file, place, content)
        except BaseException:
            self._files.free(block, 0)
            raise
        return Written(version, file, (), block)

    async def _assemble(self, old: Version | None, plan: ContentPlan, payload: memoryview, content: memoryview) -> None:
        keep = plan.keep
        if keep:
            assert old is not None
            if self._reader.read(old, 0, content[:keep]) is None:
                try:
                    await self._reader.read_cold(old, 0, content[:keep])
                except DiskFailed as error:  # one place cannot be read, the rest of the disk may be good
                    raise CorruptChunk(error.message) from error
        content[keep:] = bytes(plan.length - keep)
        content[plan.offset : plan.offset + len(payload)] = payload

    async def _take_block(self, bits: int, *, reserve: bool) -> Block:
        try:
            return await self._files.take(bits, self._store.durable, reserve=reserve)
        except NoSpace:
            if not self._files.has_freed_blocks():
                raise
        await self._store.flush()
        return await self._files.take(bits, self._store.durable, reserve=reserve)

    async def _write_large(self, file: File, place: int, content: memoryview) -> None:
        """Write past the page cache, padded with zeros to whole units; the padding lies in the block."""
        whole = len(content) - len(content) % DIRECT_BYTES
        padding = -len(content) % DIRECT_BYTES
        if not is_aligned(content[:whole]):
            size = len(content) + padding  # only payloads of the network are not aligned
            copy = await self._scratch.take(size)
            try:
                copy[: len(content)] = content
                copy[len(content) : size] = bytes(padding)
                await file.write(place, [copy[:size]], direct=True)
            finally:
                self._scratch.give(copy, size)
            return
        if not padding:
            await file.write(place, [content], direct=True)
            return
        tail = self._buffers.take(DIRECT_BYTES)
        try:
            tail[: len(content) - whole] = content[whole:]
            tail[len(content) - whole : DIRECT_BYTES] = bytes(padding)
            await file.write(place, [content[:whole], tail[:DIRECT_BYTES]], direct=True)
        finally:
            self._buffers.give(tail)


def lost_version(update: Update) -> Version:
    """A version whose bytes no member has. The checksums of its blocks are not known."""
    size = checksum_block_bytes(update.chunk_bytes)
    crcs = bytes(-(-update.length // size) * CRC_BYTES)
    version = _version(update, update.length, crcs, update.checksum, None, size)
    return replace(version, lost=True)


def _version(
    update: Update, length: int, crcs: bytes, checksum: int, block: Block | None, size: int, removed: bool = False
) -> Version:
    assert len(crcs) == -(-length // size) * CRC_BYTES
    return Version(
        update.version,
        update.chain_version,
        length,
        checksum,
        block,
        size,
        crcs,
        removed,
        update.identity,
        stamp=update.stamp,
    )


def _mismatch(update: Update) -> ChecksumMismatch:
    return ChecksumMismatch(f"the payload for version {update.version} does not match its checksum")
