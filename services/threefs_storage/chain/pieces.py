"""A change of several pieces of a chunk (WRITE_PIECES) becomes one plain write at the head of its chain.

Clients join writes that lie near each other: one version, one record and one sync at each replica, in place of one for
each write. The head puts the pieces over what is committed between them, under the lock of the chunk. So engines,
successors and repeats know only plain writes, and the same change that comes again is known by its identity.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

from threefs.checksums import crc32c
from threefs.env.net import Buffer
from threefs.errors import ChecksumMismatch, InvalidArgument
from threefs.ids import ChunkId
from threefs.layout import MAX_CHUNK_BYTES
from threefs.wire import storage_pb2 as pb
from threefs_storage.target import Target

MOST_PIECES = 256


@asynccontextmanager
async def joined(target: Target, chunk: ChunkId, write: pb.ChunkWrite, payload: Buffer) -> AsyncIterator[memoryview]:
    """Make the message a plain write, from the first piece to the end of the last one. The result is its payload, until
    the end of the `with` statement. The caller holds the lock of the chunk. Raises InvalidArgument, ChecksumMismatch,
    CorruptChunk."""
    pieces = pieces_of(write)
    if crc32c(payload) != write.checksum:
        raise ChecksumMismatch(f"the payload of {len(pieces)} pieces does not have the checksum that came with it")
    begin, end = pieces[0][0], sum(pieces[-1])
    buffer = await target.engine.joined.take(end - begin)
    try:
        content = buffer[: end - begin]
        await _lay(target, chunk, pieces, payload, content)
        write.kind, write.offset, write.length, write.checksum = pb.WRITE, begin, len(content), crc32c(content)
        write.ClearField("pieces")
        yield content
    finally:
        target.engine.joined.give(buffer, end - begin)


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
    pieces = list(zip(write.pieces[::2], write.pieces[1::2], strict=False))
    if not 0 < len(pieces) <= MOST_PIECES or len(write.pieces) % 2:
        raise InvalidArgument(f"{len(write.pieces)} numbers are not offset and length of 1 to {MOST_PIECES} pieces")
    if any(offset + length > following for (offset, length), (following, _) in pairwise(pieces)):
        raise InvalidArgument("the pieces of a write overlap, or are not in their order")
    if not all(length for _, length in pieces) or sum(length for _, length in pieces) != write.length:
        raise InvalidArgument(f"the pieces of a write are not the {write.length} bytes of its payload")
    if write.chunk_bytes > MAX_CHUNK_BYTES:
        raise InvalidArgument(f"a chunk has at most {MAX_CHUNK_BYTES} bytes, not {write.chunk_bytes}")
    if sum(pieces[-1]) > write.chunk_bytes:
        raise InvalidArgument(f"a piece ends at {sum(pieces[-1])}, and the chunk has at most {write.chunk_bytes} bytes")
    return pieces
