"""Which chunks a serving target holds, page by page, for whoever checks that they belong to files."""

from threefs.ids import ChunkId
from threefs.layout import FENCE_CHUNK
from threefs.wire import storage_pb2 as pb
from threefs_storage.engine.records import Record
from threefs_storage.targets import Target

MOST_ROWS = 2048
GOOD, DAMAGED, LOST = range(3)


def catalog(target: Target, after: ChunkId | None, limit: int) -> pb.ScanChunksReply:
    limit = min(limit or MOST_ROWS, MOST_ROWS)
    found = target.engine.inventory(after, limit + 1)
    reply = pb.ScanChunksReply(more=len(found) > limit)
    for chunk, record in found[:limit]:
        reply.last_inode, reply.last_index = chunk
        committed = record.committed if record is not None else None
        pending = record is not None and record.pending is not None
        if chunk.number == FENCE_CHUNK or (committed is not None and committed.removed and not pending):
            continue
        reply.inode.append(chunk.inode)
        reply.index.append(chunk.number)
        reply.version.append(committed.version if committed is not None else 0)
        reply.length.append(committed.length if committed is not None else 0)
        reply.checksum.append(committed.checksum if committed is not None else 0)
        reply.pending.append(pending)
        reply.health.append(
            LOST if chunk in target.engine.lost_chunks else DAMAGED if _damaged(target, chunk, record) else GOOD
        )
    return reply


def _damaged(target: Target, chunk: ChunkId, record: Record | None) -> bool:
    return record is None or chunk in target.damaged
