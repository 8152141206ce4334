"""A change of several pieces of a chunk (WRITE_PIECES) becomes one plain write at the head of its chain.

Clients join writes that lie near each other: one version, one record and one sync at each replica, in place of one for
each write. The head puts the pieces over what is committed between them, under the lock of the chunk. So engines,
successors and repeats know only plain writes, and the same change that comes again is known by its identity.
"""

from itertools import pairwise

from threefs.checksums import crc32c
from threefs.env.net import Buffer
from threefs.errors import ChecksumMismatch, InvalidArgument
from threefs.wire import storage_pb2 as pb
from threefs_storage.engine.chunk_record import Version
from threefs_storage.target import Target

MOST_PIECES = 256


async def join(target: Target, committed: Version | None, write: pb.ChunkWrite, payload: Buffer) -> memoryview:
    """Make the message a plain write, from the first piece to the end of the last one, and return its payload. The
    caller holds the lock of the chunk. Raises InvalidArgument, ChecksumMismatch, CorruptChunk, DiskFailed."""
    pieces = pieces_of(write)
    if crc32c(payload) != write.checksum:
        raise ChecksumMismatch(f"the payload of {len(pieces)} pieces does not have the checksum that came with it")
    begin, end = pieces[0][0], sum(pieces[-1])
    content = memoryview(bytearray(end - begin))
    kept = min(end, committed.length) - begin if committed is not None else 0
    if committed is not None and kept > 0 and target.engine.read(committed, begin, content[:kept]) is None:
        await target.engine.read_cold(committed, begin, content[:kept])
    place = 0
    for offset, length in pieces:
        content[offset - begin : offset - begin + length] = payload[place : place + length]
        place += length
    assert place == len(payload), "each byte of the payload belongs to one piece"
    write.kind, write.offset, write.length, write.checksum = pb.WRITE, begin, len(content), crc32c(content)
    write.ClearField("pieces")
    return content


def pieces_of(write: pb.ChunkWrite) -> list[tuple[int, int]]:
    """Offset and length of each piece. Raises InvalidArgument."""
    pieces = list(zip(write.pieces[::2], write.pieces[1::2], strict=False))
    if not 0 < len(pieces) <= MOST_PIECES or len(write.pieces) % 2:
        raise InvalidArgument(f"{len(write.pieces)} numbers are not offset and length of 1 to {MOST_PIECES} pieces")
    if any(offset + length > following for (offset, length), (following, _) in pairwise(pieces)):
        raise InvalidArgument("the pieces of a write overlap, or are not in their order")
    if not all(length for _, length in pieces) or sum(length for _, length in pieces) != write.length:
        raise InvalidArgument(f"the pieces of a write are not the {write.length} bytes of its payload")
    if sum(pieces[-1]) > write.chunk_bytes:
        raise InvalidArgument(f"a piece ends at {sum(pieces[-1])}, and the chunk has at most {write.chunk_bytes} bytes")
    return pieces
