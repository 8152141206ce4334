"""Writing the content of a new version: into its overlay, into a new block, or behind the content of its block."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from threefs.checksums import CRC_BYTES, Buffer, block_crcs, checksum_block_bytes, combine, crc32c
from threefs.env.disk import DIRECT_BYTES, File, Write, is_aligned
from threefs.errors import ChecksumMismatch, CorruptChunk, DiskFailed, NoSpace
from threefs_storage.engine.block_files import BlockFiles, block_bits
from threefs_storage.engine.chunk_reader import DIRECT_FROM_BYTES, ChunkReader
from threefs_storage.engine.chunk_record import Block, Version
from threefs_storage.engine.content_plan import (
    ContentPlan,
    Kind,
    Update,
    changed_checksums,
    partly_kept_blocks,
)
from threefs_storage.engine.disk_work import DiskWork
from threefs_storage.engine.overlay import BlobKey, Overlay
from threefs_storage.engine.record_store import RecordStore
from threefs_storage.engine.working_memory import WorkingMemory

#: The next block of a chunk that grows by appends has room for this many times its content.
_GROWTH_FACTOR = 4


@dataclass(frozen=True, slots=True)
class Written:
    """A version with its content. The group commit makes it durable: it does the writes of small content to a block,
    and writes the blobs with the record."""

    version: Version
    file: File | None = None
    writes: Sequence[Write] = field(default=())
    fresh: Block | None = None  # the block that was taken for it
    blobs: Mapping[BlobKey, bytes] = field(default_factory=dict)
    counts: bool = True  # for the generation of the store; False: only the place of its content is another one


class ChunkWriter:
    def __init__(
        self,
        files: BlockFiles,
        store: RecordStore,
        reader: ChunkReader,
        memory: WorkingMemory,
        work: DiskWork,
        make_room: Callable[[], Awaitable[None]],
    ) -> None:
        """`work` counts what is written to the disk here. `make_room` is called when it has no room for a block."""
        self._files = files
        self._store = store
        self._reader = reader
        self._buffers = memory.buffers
        self.scratch = memory.changes
        self._work = work
        self._make_room = make_room
        #: Blocks with bytes of a dropped version after the committed ones. A crash may bring that version back, so its
        #: bytes must not be overwritten.
        self.torn: set[Block] = set()

    async def write(
        self, blob: BlobKey, old: Version | None, update: Update, plan: ContentPlan, payload: memoryview
    ) -> Written:
        """`blob` is free for it. Raises ChecksumMismatch (of the payload), NoSpace, CorruptChunk (of the old content),
        DiskFailed."""
        size = checksum_block_bytes(update.chunk_bytes)
        if plan.length == 0:
            removed = update.kind == Kind.REMOVE or update.removed
            return Written(_version(update, 0, b"", 0, None, size, removed))
        if not plan.whole and len(payload) and crc32c(payload) != update.checksum:
            raise _mismatch(update)
        reserve = _may_use_reserve(old, update, plan)
        if plan.whole:
            return await self.write_whole(blob, old, update, plan, payload, reserve)
        deferred = self._deferred(blob, old, plan, size, reserve)
        if deferred is not None:
            return await self._defer(blob, old, deferred, update, plan, payload)
        if old is not None and self._can_append(old, plan, size):
            return await self._append(old, update, plan, payload)
        content = await self.scratch.take(plan.length)
        try:
            await self._assemble(old, plan, payload, content[: plan.length])
            return await self.write_whole(blob, old, update, plan, content[: plan.length], reserve)
        finally:
            self.scratch.give(content)

    def _deferred(
        self, blob: BlobKey, old: Version | None, plan: ContentPlan, size: int, reserve: bool
    ) -> Overlay | None:
        """The overlay of the new version; None if the change cannot be deferred."""
        limits = self._store.limits
        if not limits.deferred_bytes or plan.payload > limits.deferred_bytes:
            return None
        if old is None:
            overlay = Overlay(blob.chunk, 0)
        elif old.lost or old.checksum_block_bytes != size or _outgrows_block(old, plan):
            return None
        else:
            overlay = (old.overlay or Overlay(blob.chunk, old.base_length)).cut(plan.length)
        overlay = overlay.written(plan.offset, plan.payload, blob.number)
        if overlay.count > limits.extents or overlay.stored_bytes > limits.stored_bytes:
            return None
        return overlay if self._files.has_room_beside(plan.payload, reserve=reserve) else None

    async def _defer(
        self,
        blob: BlobKey,
        old: Version | None,
        overlay: Overlay,
        update: Update,
        plan: ContentPlan,
        payload: memoryview,
    ) -> Written:
        """Keep the change in the record store."""
        size = checksum_block_bytes(update.chunk_bytes)
        kept: dict[int, bytes] = {}
        if old is not None:
            for number in partly_kept_blocks(old.length, size, plan):
                kept[number] = await self._read_old_block(old, number * size, size)
        crcs, checksum = changed_checksums(old, size, plan, payload, kept)
        block = old.block if old is not None else None
        if old is not None and block is not None and overlay.base_length < old.base_length:
            self.torn.add(block)  # a crash may bring back the version with the bytes that are cut off
        needed = None if block is not None and overlay == Overlay(blob.chunk, plan.length) else overlay
        version = _version(update, plan.length, crcs, checksum, block, size, overlay=needed)
        return Written(version, blobs={blob: bytes(payload)} if len(payload) else {})

    async def _read_old_block(self, old: Version, begin: int, size: int) -> bytes:
        """The old content of a checksum block, verified."""
        content = bytearray(min(size, old.length - begin))
        await self.read_old(old, begin, memoryview(content))
        return bytes(content)

    async def read_old(self, old: Version, begin: int, into: memoryview) -> None:
        """Fill `into` with verified content of that version. Raises CorruptChunk."""
        if self._reader.read(old, begin, into) is None:
            try:
                await self._reader.read_cold(old, begin, into)
            except DiskFailed as error:  # one place cannot be read, the rest of the disk may be good
                raise CorruptChunk(error.message) from error

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
        """Write into the block of the committed version, behind its bytes: they and their checksums stay valid. What
        the overlay has behind them moves there, too."""
        block = old.block
        assert block is not None, "an append goes behind the bytes of a block"
        size, base = old.checksum_block_bytes, old.base_length
        crcs, checksum = changed_checksums(old, size, plan, payload, {})
        overlay = None if old.overlay is None else _clipped(replace(old.overlay, base_length=plan.length), base)
        version = _version(update, plan.length, crcs, checksum, block, size, overlay=overlay)
        if plan.length == base:
            return Written(version)
        zeros = bytes(plan.length - old.length - len(payload))
        place = (block.slot << block.bits) + base
        if old.length == base:
            return await self.write_behind(version, place, [part for part in (zeros, payload) if len(part)])
        moved = await self.scratch.take(old.length - base)
        try:
            tail = moved[: old.length - base]
            await self.read_old(old, base, tail)
            first = bytes(tail) if plan.length - base < DIRECT_FROM_BYTES else tail  # small parts are written later
            parts = [first, *(part for part in (zeros, payload) if len(part))]
            return await self.write_behind(version, place, parts)
        finally:
            self.scratch.give(moved)

    async def write_behind(self, version: Version, place: int, parts: Sequence[Buffer]) -> Written:
        """Write these parts into the block of the version. Small ones are left to the group commit."""
        assert version.block is not None, "bytes are written behind those of a block"
        file = self._files.file(version.block)
        if sum(map(len, parts)) < DIRECT_FROM_BYTES:
            return Written(version, file, [(place, parts)])
        if len(parts) > 1 or place % DIRECT_BYTES:
            with self._work:
                await file.write(place, parts)
        else:
            await self._write_large(file, place, memoryview(parts[0]))
        return Written(version, file)

    async def write_whole(
        self, blob: BlobKey, old: Version | None, update: Update, plan: ContentPlan, content: memoryview, reserve: bool
    ) -> Written:
        """Write all content of the new version: small content as a blob, other content into a new block."""
        limits = self._store.limits
        if (
            not limits.deferred_bytes
            or len(content) > limits.inline_bytes
            or not self._files.has_room_beside(len(content), reserve=reserve)
        ):
            return await self._write_new_block(old, update, plan, content, reserve)
        size = checksum_block_bytes(update.chunk_bytes)
        crcs, checksum = _checksums(update, plan, content, size)
        overlay = Overlay(blob.chunk, 0).written(0, len(content), blob.number)
        version = _version(update, plan.length, crcs, checksum, None, size, overlay=overlay)
        return Written(version, blobs={blob: bytes(content)})

    async def _write_new_block(
        self, old: Version | None, update: Update, plan: ContentPlan, content: memoryview, reserve: bool
    ) -> Written:
        """Write into a new block."""
        size = checksum_block_bytes(update.chunk_bytes)
        crcs, checksum = _checksums(update, plan, content, size)
        bits = block_bits(len(content))
        if old is not None and old.length and plan.appends(old.length):
            bits = max(bits, min(block_bits(update.chunk_bytes), block_bits(_GROWTH_FACTOR * len(content))))
        block = await self._take_block(bits, reserve=reserve)
        version = _version(update, plan.length, crcs, checksum, block, size)
        file, place = self._files.file(block), block.slot << block.bits
        if len(content) < DIRECT_FROM_BYTES:
            copied = bytes(content)  # it may be in a scratch buffer
            return Written(version, file, [(place, [copied])], block)
        try:
            await self._write_large(file, place, content)
        except BaseException:
            self._files.free(block, 0)
            raise
        return Written(version, file, (), block)

    async def _assemble(self, old: Version | None, plan: ContentPlan, payload: memoryview, content: memoryview) -> None:
        keep = plan.keep
        if keep:
            assert old is not None, "what a change keeps is of an older version"
            await self.read_old(old, 0, content[:keep])
        content[keep:] = bytes(plan.length - keep)
        content[plan.offset : plan.offset + len(payload)] = payload

    async def _take_block(self, bits: int, *, reserve: bool) -> Block:
        for make_room in (self._settle_freed, self._make_room):
            try:
                with self._work:
                    return await self._files.take(bits, self._store.durable, reserve=reserve)
            except NoSpace:
                await make_room()
        with self._work:
            return await self._files.take(bits, self._store.durable, reserve=reserve)

    async def _settle_freed(self) -> None:
        """Have what was given up a moment ago count as free."""
        if self._files.has_freed_blocks():
            with self._work:
                await self._store.flush()

    async def _write_large(self, file: File, place: int, content: memoryview) -> None:
        """Write past the page cache, padded with zeros to whole units; the padding lies in the block."""
        whole = len(content) - len(content) % DIRECT_BYTES
        padding = -len(content) % DIRECT_BYTES
        if not is_aligned(content[:whole]):
            size = len(content) + padding  # only payloads of the network are not aligned
            copy = await self.scratch.take(size)
            try:
                copy[: len(content)] = content
                copy[len(content) : size] = bytes(padding)
                with self._work:
                    await file.write(place, [copy[:size]], direct=True)
            finally:
                self.scratch.give(copy)
            return
        if not padding:
            with self._work:
                await file.write(place, [content], direct=True)
            return
        tail = self._buffers.take(DIRECT_BYTES)
        try:
            tail[: len(content) - whole] = content[whole:]
            tail[len(content) - whole : DIRECT_BYTES] = bytes(padding)
            with self._work:
                await file.write(place, [content[:whole], tail[:DIRECT_BYTES]], direct=True)
        finally:
            self._buffers.give(tail)


def lost_version(update: Update) -> Version:
    """A version whose bytes no member has. The checksums of its blocks are not known."""
    size = checksum_block_bytes(update.chunk_bytes)
    crcs = bytes(-(-update.length // size) * CRC_BYTES)
    version = _version(update, update.length, crcs, update.checksum, None, size)
    return replace(version, lost=True)


def _may_use_reserve(old: Version | None, update: Update, plan: ContentPlan) -> bool:
    """Whether the reserve of the disk may be used: a predecessor has the change already, or it makes room."""
    shrinks = old is not None and plan.length <= old.length and update.kind == Kind.TRUNCATE
    return update.admitted or update.kind == Kind.REPLACE or shrinks


def _outgrows_block(old: Version, plan: ContentPlan) -> bool:
    """Whether the content is cut so far that it needs only a smaller block."""
    return old.block is not None and plan.length < old.length and block_bits(plan.length) < old.block.bits


def _clipped(overlay: Overlay, length: int) -> Overlay | None:
    """The overlay without its extents from `length` on; None if none is left, and the block has all bytes before."""
    kept = Overlay.of(overlay.chunk, overlay.base_length, overlay.within(0, length))
    return kept if kept.row else None


def _checksums(update: Update, plan: ContentPlan, content: memoryview, size: int) -> tuple[bytes, int]:
    """Raises ChecksumMismatch if the content came as a whole, and is not what its sender means."""
    crcs = block_crcs(content, size)
    checksum = combine(crcs, size, (len(content) - 1) % size + 1)
    if plan.whole and checksum != update.checksum:
        raise _mismatch(update)
    return crcs, checksum


def _version(
    update: Update,
    length: int,
    crcs: bytes,
    checksum: int,
    block: Block | None,
    size: int,
    removed: bool = False,
    overlay: Overlay | None = None,
) -> Version:
    assert len(crcs) == -(-length // size) * CRC_BYTES, "each checksum block has its checksum (I12)"
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
        overlay=overlay,
    )


def _mismatch(update: Update) -> ChecksumMismatch:
    return ChecksumMismatch(f"the payload for version {update.version} does not match its checksum")
