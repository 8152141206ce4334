"""A change of several pieces of a chunk (WRITE_PIECES) becomes one plain write at the head of its chain.

Clients join writes that lie near each other: one version, one record and one sync at each replica, in place of one for
each write. The head puts the pieces over what is committed between them, under the lock of the chunk. So engines,
successors and repeats know only plain writes, and the same change that comes again is known by its identity.
"""

import asyncio
from itertools import pairwise

from threefs.checksums import crc32c
from threefs.env.net import Buffer
from threefs.errors import ChecksumMismatch, DeadlineExceeded, InvalidArgument
from threefs.ids import ChunkId
from threefs.layout import MAX_CHUNK_BYTES
from threefs.wire import storage_pb2 as pb
from threefs_storage.target import Target

MOST_PIECES = 256


class PlainPayload:
    """The payload of a write of a client, which is a plain one from here to the end of the `with` statement: from the
    first piece to the end of the last one. The caller holds the lock of the chunk, and waits for memory for at most
    `wait_s`. Raises InvalidArgument, ChecksumMismatch, CorruptChunk, DeadlineExceeded."""

    __slots__ = ("_buffer", "_chunk", "_engine", "_payload", "_size", "_target", "_wait_s", "_write")

    def __init__(self, target: Target, chunk: ChunkId, write: pb.ChunkWrite, payload: Buffer, wait_s: float) -> None:
        self._target = target
        self._chunk = chunk
        self._write = write
        self._payload = payload
        self._wait_s = wait_s
        self._buffer: memoryview | None = None

    async def __aenter__(self) -> Buffer:
        write, payload = self._write, self._payload
        if write.kind != pb.WRITE_PIECES:
            return payload
        pieces = pieces_of(write)
        if crc32c(payload) != write.checksum:
            raise ChecksumMismatch(f"the payload of {len(pieces)} pieces does not have the checksum that came with it")
        begin, self._size, self._engine = pieces[0][0], sum(pieces[-1]) - pieces[0][0], self._target.engine
        self._buffer = await self._take()
        content = self._buffer[: self._size]
        try:
            await _lay(self._target, self._chunk, pieces, payload, content)
        except BaseException:
            self._give()
            raise
        write.kind, write.offset, write.length, write.checksum = pb.WRITE, begin, len(content), crc32c(content)
        write.ClearField("pieces")
        return content

    async def _take(self) -> memoryview:
        assert 0 < self._size <= MAX_CHUNK_BYTES, "pieces_of has checked where they end"
        try:
            async with asyncio.timeout(self._wait_s):
                return await self._engine.joined.take(self._size)
        except TimeoutError:
            raise DeadlineExceeded(f"other writes held the memory for pieces for {self._wait_s:.3f} s") from None

    async def __aexit__(self, *_: object) -> None:
        self._give()

    def _give(self) -> None:
        if self._buffer is not None:
            self._engine.joined.give(self._buffer)


async def _lay(
    target: Target, chunk: ChunkId, pieces: list[tuple[int, int]], payload: Buffer, content: memoryview
) -> None:
    """Lay the pieces over what is committed between them."""
    begin, place = pieces[0][0], 0
    record = target.engine.record(chunk)  # now: the version may have moved to another block during a wait
    committed = record.committed if record is not None else None
    kept = max(0, min(begin + len(content), committed.length) - begin) if committed is not None else 0
    if committed is not None and kept:
        await target.engine.read_old(committed, begin, content[:kept])
    content[kept:] = bytes(len(content) - kept)
    for offset, length in pieces:
        content[offset - begin : offset - begin + length] = payload[place : place + length]
        place += length
    assert place == len(payload), "each byte of the payload belongs to one piece"


def pieces_of(write: pb.ChunkWrite) -> list[tuple[int, int]]:
    """Offset and length of each piece. Raises InvalidArgument."""
    numbers = len(write.pieces)  # any: the request may be large
    if not 0 < numbers <= 2 * MOST_PIECES or numbers % 2:
        raise InvalidArgument(f"{numbers} numbers are not offset and length of 1 to {MOST_PIECES} pieces")
    pieces = list(zip(write.pieces[::2], write.pieces[1::2], strict=True))
    if any(offset + length > following for (offset, length), (following, _) in pairwise(pieces)):
        raise InvalidArgument("the pieces of a write overlap, or are not in their order")
    if not all(length for _, length in pieces) or sum(length for _, length in pieces) != write.length:
        raise InvalidArgument(f"the pieces of a write are not the {write.length} bytes of its payload")
    if write.chunk_bytes > MAX_CHUNK_BYTES:
        raise InvalidArgument(f"a chunk has at most {MAX_CHUNK_BYTES} bytes, not {write.chunk_bytes}")
    if sum(pieces[-1]) > write.chunk_bytes:
        raise InvalidArgument(f"a piece ends at {sum(pieces[-1])}, and the chunk has at most {write.chunk_bytes} bytes")
    return pieces
