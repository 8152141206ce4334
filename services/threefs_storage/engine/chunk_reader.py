"""Reading a version's bytes, verified against its checksums."""

from collections.abc import Callable

import google_crc32c
import numpy as np

from threefs.checksums import crc32c
from threefs.env.buffers import BufferPool
from threefs.env.disk import DIRECT_BYTES, is_aligned
from threefs.errors import ChunkLost, CorruptChunk, DiskFailed, InvalidArgument
from threefs_storage.engine.block_files import BlockFiles
from threefs_storage.engine.content_plan import covering, expected_checksum
from threefs_storage.engine.ghost_cache import GhostCache
from threefs_storage.engine.records import Block, Version
from threefs_storage.engine.scratch import Scratch

#: Transfers of at least this many bytes go past the page cache.
DIRECT_FROM_BYTES = 64 << 10
#: Bytes of scratch buffers for reads of parts of checksum blocks, per target.
SCRATCH_BYTES = 64 << 20

_value = google_crc32c.value
_frombuffer = np.frombuffer
_U8 = np.dtype(np.uint8)


class ChunkReader:
    def __init__(
        self,
        files: BlockFiles,
        buffers: BufferPool,
        on_unreadable: Callable[[Block, DiskFailed], None] = lambda block, error: None,
    ) -> None:
        self._files = files
        self._on_unreadable = on_unreadable
        self._buffers = buffers
        self._scratch = Scratch(buffers, SCRATCH_BYTES)
        self._ghosts = GhostCache()

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
        block = version.block
        if block is None or not len(into):
            return _read_nothing(version, into)
        begin, end = covering(version, offset, len(into))
        size = end - begin
        direct = past_cache or (size >= DIRECT_FROM_BYTES and not self._ghosts.note_read(version, begin))
        exact = size == len(into)
        scratch: memoryview | None = None
        self._files.pin(block)
        try:
            if not exact or (direct and not is_aligned(into)):
                scratch = await self._scratch.take(size)
            target = into if scratch is None else scratch[: _padded(size) if direct else size]
            place = (block.slot << block.bits) + begin
            try:
                found = await self._files.file(block).read(place, target, direct=direct)
            except DiskFailed as error:
                self._on_unreadable(block, error)
                raise
            if found < size:
                raise _corrupt(version, begin, end)
            checksum = _verified(version, begin, target[:size])
            if scratch is None:
                return checksum
            into[:] = target[offset - begin : offset - begin + len(into)]
        finally:
            self._files.unpin(block)
            if scratch is not None:
                self._scratch.give(scratch, size)
        return checksum if exact else crc32c(into)

    def _read_part(self, version: Version, offset: int, into: memoryview) -> int | None:
        """Like `read`, for a range that begins or ends within a checksum block."""
        _check_range(version, offset, into)
        block = version.block
        if block is None or not len(into):
            return _read_nothing(version, into)
        begin, end = covering(version, offset, len(into))
        if end - begin >= DIRECT_FROM_BYTES and not self._ghosts.cached(version, begin):
            return None
        scratch = self._buffers.take(end - begin)
        try:
            target = scratch[: end - begin]
            if self._files.file(block).read_now((block.slot << block.bits) + begin, target) < len(target):
                return None
            _verified(version, begin, target)
            into[:] = target[offset - begin : offset - begin + len(into)]
        finally:
            self._buffers.give(scratch)
        return crc32c(into)


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
