"""Pages of the chunks at a serving target, for checks of files (fsck) and of replicas (scrubber)."""

from threefs.ids import ChunkId
from threefs.layout import FENCE_CHUNK
from threefs.wire import storage_pb2 as pb
from threefs_storage.engine.chunk_record import Record
from threefs_storage.target import Target

MAX_ROWS = 2048
GOOD, DAMAGED, LOST, REMOVED = range(4)


def scan_chunks(target: Target, after: ChunkId | None, limit: int, *, removed: bool = False) -> pb.ScanChunksReply:
    """One page of chunks behind `after`. With `removed`, tombstones and fences are included: everything in which
    replicas must be equal."""
    limit = min(limit or MAX_ROWS, MAX_ROWS)
    found = target.engine.inventory(after, limit + 1)
    reply = pb.ScanChunksReply(more=len(found) > limit)
    for chunk, record in found[:limit]:
        reply.last_inode, reply.last_index = chunk
        if chunk.number == FENCE_CHUNK and not removed:  # no part of a file
            continue
        committed = record.committed if record is not None else None
        pending = record is not None and record.pending is not None
        gone = committed is not None and committed.removed
        if gone and not pending and not removed:
            continue
        reply.inode.append(chunk.inode)
        reply.index.append(chunk.number)
        reply.version.append(committed.version if committed is not None else 0)
        reply.length.append(committed.length if committed is not None else 0)
        reply.checksum.append(committed.checksum if committed is not None else 0)
        reply.pending.append(pending)
        reply.health.append(REMOVED if gone and removed else _health(target, chunk, record))
    return reply


def _health(target: Target, chunk: ChunkId, record: Record | None) -> int:
    if chunk in target.engine.lost_chunks:
        return LOST
    return DAMAGED if record is None or chunk in target.damaged else GOOD
