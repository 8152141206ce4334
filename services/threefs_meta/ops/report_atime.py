"""Store the access times of files that clients have read, where relatime asks for it.

This takes no permission: the caller has read the files, and cannot choose a time.
"""

from threefs.access_time import due_ns
from threefs.errors import InvalidArgument
from threefs.kv.engine_api import Transaction
from threefs.wire import meta_pb2 as pb
from threefs_meta.context import Context

MAX_FILES = 256


async def report_atime(context: Context, request: pb.ReportAtimeRequest) -> pb.ReportAtimeReply:
    if not len(request.inode) == len(request.ago_ms) <= MAX_FILES:
        raise InvalidArgument(
            f"a report names at most {MAX_FILES} files, and for each how long ago it was read; "
            f"not {len(request.inode)} files and {len(request.ago_ms)} times"
        )
    now_ns = context.clock.wall_ns()

    async def attempt(tx: Transaction) -> None:
        ns = context.namespace(tx)
        found = await ns.readable_inodes(request.inode)
        for inode, ago_ms in zip(found, request.ago_ms, strict=True):
            at_ns = now_ns - ago_ms * 10**6
            if inode is not None and inode.type == pb.FILE and inode.nlink and at_ns >= max(due_ns(inode), 1):
                inode.atime_ns = max(inode.atime_ns, at_ns)
                ns.put_inode_unseen(inode)

    await context.transact(attempt)
    return pb.ReportAtimeReply()
