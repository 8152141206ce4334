"""Reading a version's bytes, verified against its checksums.

The checksums of a version are those of its content, wherever the bytes lie: a checksum block that is partly in a block
and partly in blobs is put together, then verified as one.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Sequence

import google_crc32c
import numpy as np

from threefs.checksums import crc32c
from threefs.env.disk import DIRECT_BYTES, is_aligned
from threefs.errors import ChunkLost, Corrupt, CorruptChunk, DiskFailed, InvalidArgument
from threefs.ids import ChunkId
from threefs_storage.engine.block_files import BlockFiles
from threefs_storage.engine.chunk_record import Block, Version
from threefs_storage.engine.content_plan import covering, expected_checksum
from threefs_storage.engine.disk_work import DiskWork
from threefs_storage.engine.ghost_cache import GhostCache
from threefs_storage.engine.overlay import BlobKey, Extent
from threefs_storage.engine.working_memory import WorkingMemory

#: Transfers of at least this many bytes go past the page cache.
DIRECT_FROM_BYTES = 64 << 10

_value = google_crc32c.value
_frombuffer = np.frombuffer
_U8 = np.dtype(np.uint8)

#: Where bytes of a blob lie in a range, and the bytes.
_Piece = tuple[int, memoryview]

#: Ranges of the content that lie together on the disk: in the block, or in one blob.
Part = list[tuple[int, int]]


class ChunkReader:
    def __init__(
        self,
        files: BlockFiles,
        memory: WorkingMemory,
        blob: Callable[[BlobKey], bytes | None],
        on_unreadable: Callable[[Block, DiskFailed], None] = lambda block, error: None,
    ) -> None:
        """`blob` reads a blob from the record store."""
        self._files = files
        self._blob = blob
        self._on_unreadable = on_unreadable
        self._buffers = memory.buffers
        self._scratch = memory.reads
        self._ghosts = GhostCache()
        self.work = DiskWork()  # reads that were not in memory

    def read(self, version: Version, offset: int, into: memoryview) -> int | None:
        """Fill `into` without waiting for the disk. Returns the CRC32C of the bytes, or None if they are not in memory.

        The range lies within the version's length. Raises CorruptChunk.
        """
        # This is the hottest path of the service: it has only what a read of one whole checksum block needs.
        block = version.block
        end = offset + len(into)
        mask = version.checksum_block_bytes - 1
        if (
            block is None
            or version.overlay is not None
            or end == offset
            or offset & mask
            or (end & mask and end != version.length)
            or end > version.length
        ):
            return self._read_part(version, offset, into)
        if len(into) >= DIRECT_FROM_BYTES and not self._ghosts.cached(version, offset):
            return None
        if self._files.file(block).read_now((block.slot << block.bits) + offset, into) < len(into):
            return None
        checksum: int = _value(_frombuffer(into, _U8))
        if checksum != expected_checksum(version, offset, end):
            raise _corrupt(version, offset, end)
        return checksum

    async def read_cold(self, version: Version, offset: int, into: memoryview, *, past_cache: bool = False) -> int:
        """Fill `into`, waiting for the disk. Returns the CRC32C of the bytes. Raises CorruptChunk, DiskFailed.

        Large ranges are read past the page cache the first time, and through it if they are read again soon. With
        `past_cache` the bytes come from the disk itself.
        """
        _check_range(version, offset, into)
        if not version.has_bytes or not len(into):
            return _read_nothing(version, into)
        begin, end = covering(version, offset, len(into))
        size = end - begin
        # Now: once this waits, another version may take the place of this one, and its blobs are removed.
        pieces = _copied(self._pieces(version, begin, end))
        base = _base_needed(version, begin, end)
        direct = base > 0 and (past_cache or (base >= DIRECT_FROM_BYTES and not self._ghosts.note_read(version, begin)))
        exact = size == len(into)
        scratch: memoryview | None = None
        block = version.block
        if block is not None:
            self._files.pin(block)
        try:
            if not exact or (direct and (base < size or not is_aligned(into))):
                scratch = await self._scratch.take(size)
            target = into if scratch is None else scratch[: _padded(size) if direct else size]
            if base and block is not None:
                await self._read_block(version, block, begin, target[: _padded(base) if direct else base], base, direct)
            _lay(target, base, size, pieces)
            checksum = _verified(version, begin, target[:size])
            if scratch is None:
                return checksum
            into[:] = target[offset - begin : offset - begin + len(into)]
        finally:
            if block is not None:
                self._files.unpin(block)
            if scratch is not None:
                self._scratch.give(scratch)
        return checksum if exact else crc32c(into)

    async def read_raw(self, version: Version, into: memoryview) -> list[Part]:
        """Fill `into` with all bytes of a version that can be read, not verified. Returns where those of the block are,
        and those of each blob: bytes that lie together may be damaged together."""
        size, overlay = len(into), version.overlay
        extents = tuple(overlay.within(0, size)) if overlay is not None else ()
        pieces, blobs = list[_Piece](), defaultdict[int, Part](list)
        for extent in extents:
            assert overlay is not None, "extents are those of an overlay"
            with contextlib.suppress(CorruptChunk):
                pieces.append((extent.offset, memoryview(bytes(self._piece(version, overlay.chunk, extent)))))
            blobs[extent.blob].append((extent.offset, extent.end))
        base, block = _base_needed(version, 0, size), version.block
        if base and block is not None:
            self._files.pin(block)
            try:
                with contextlib.suppress(CorruptChunk, DiskFailed):
                    await self._read_block(version, block, 0, into[:base], base, direct=False)
            finally:
                self._files.unpin(block)
        _lay(into, base, size, pieces)
        begins, ends = (0, *(extent.end for extent in extents)), (*(extent.offset for extent in extents), size)
        of_block = [(begin, min(end, base)) for begin, end in zip(begins, ends, strict=True) if begin < min(end, base)]
        return [of_block, *blobs.values()]

    async def _read_block(
        self, version: Version, block: Block, begin: int, into: memoryview, length: int, direct: bool
    ) -> None:
        try:
            with self.work:
                found = await self._files.file(block).read((block.slot << block.bits) + begin, into, direct=direct)
        except DiskFailed as error:
            self._on_unreadable(block, error)
            raise
        if found < length:
            raise _corrupt(version, begin, begin + length)

    def _read_part(self, version: Version, offset: int, into: memoryview) -> int | None:
        """Like `read`, for a version with an overlay, or a range that begins or ends within a checksum block."""
        _check_range(version, offset, into)
        if not version.has_bytes or not len(into):
            return _read_nothing(version, into)
        begin, end = covering(version, offset, len(into))
        base = _base_needed(version, begin, end)
        if base >= DIRECT_FROM_BYTES and not self._ghosts.cached(version, begin):
            return None
        size = end - begin
        if size == len(into):
            return self._assemble_now(version, begin, base, into)
        scratch = self._buffers.take(size)
        try:
            target = scratch[:size]
            if self._assemble_now(version, begin, base, target) is None:
                return None
            into[:] = target[offset - begin : offset - begin + len(into)]
        finally:
            self._buffers.give(scratch)
        return crc32c(into)

    def _assemble_now(self, version: Version, begin: int, base: int, target: memoryview) -> int | None:
        """Fill `target` with whole checksum blocks from `begin` on, of which the block has the first `base` bytes.
        Returns their CRC32C, or None if they are not in memory."""
        block = version.block
        if base and block is not None:
            place = (block.slot << block.bits) + begin
            if self._files.file(block).read_now(place, target[:base]) < base:
                return None
        _lay(target, base, len(target), self._pieces(version, begin, begin + len(target)))
        return _verified(version, begin, target)

    def _pieces(self, version: Version, begin: int, end: int) -> list[_Piece]:
        """The bytes of a range that are in blobs. Raises CorruptChunk."""
        overlay = version.overlay
        if overlay is None:
            return []
        return [
            (extent.offset - begin, self._piece(version, overlay.chunk, extent))
            for extent in overlay.within(begin, end)
        ]

    def _piece(self, version: Version, chunk: ChunkId, extent: Extent) -> memoryview:
        try:
            data = self._blob(BlobKey(chunk, extent.blob))
        except Corrupt as error:
            raise CorruptChunk(error.message) from error
        if data is None or len(data) != extent.blob_bytes:
            raise _corrupt(version, extent.offset, extent.end)
        return memoryview(data)[extent.blob_offset : extent.blob_offset + extent.length]


def _copied(pieces: Sequence[_Piece]) -> list[_Piece]:
    """The same bytes for a read that waits: views of them would keep their blobs in memory, which may be much larger
    (I20)."""
    return [(place, memoryview(bytes(data))) for place, data in pieces]


def _base_needed(version: Version, begin: int, end: int) -> int:
    """How many bytes of the block, from `begin` on, a read of this range needs."""
    return end - begin if version.overlay is None else version.overlay.base_needed(begin, end)


def _lay(target: memoryview, base: int, size: int, pieces: Sequence[_Piece]) -> None:
    """Complete a range whose first `base` bytes have been read from the block."""
    if base < size:
        target[base:size] = bytes(size - base)
    for place, data in pieces:
        target[place : place + len(data)] = data


def _verified(version: Version, begin: int, data: memoryview) -> int:
    checksum = crc32c(data)
    if checksum != expected_checksum(version, begin, begin + len(data)):
        raise _corrupt(version, begin, begin + len(data))
    return checksum


def _read_nothing(version: Version, into: memoryview) -> int:
    if version.lost and len(into):
        raise ChunkLost
    return 0


def _check_range(version: Version, offset: int, into: memoryview) -> None:
    if offset < 0 or offset + len(into) > version.length:
        raise InvalidArgument(
            f"bytes {offset} to {offset + len(into)} are outside of a version of {version.length} bytes"
        )


def _corrupt(version: Version, begin: int, end: int) -> CorruptChunk:
    return CorruptChunk(f"bytes {begin} to {end} of version {version.version} in {version.block} fail their checksum")


def _padded(length: int) -> int:
    return -(-length // DIRECT_BYTES) * DIRECT_BYTES
