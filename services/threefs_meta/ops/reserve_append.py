"""Reserve the place of an append, so that appends of many clients never mix; or extend a file (fallocate).

An append makes the file longer when its bytes are written, like any write. If another client has appended behind it by
then, readers wait for the missing bytes. If the writer dies, they become zeros at the end of its session.

An extension sets the length at once. Unlike a truncate, it never removes bytes that others have written.
"""

from threefs.errors import InvalidArgument
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import privileges
from threefs_meta.access.credentials import actor_of
from threefs_meta.context import Context
from threefs_meta.file.length import check_length, reserve_append
from threefs_meta.lease import write_sessions
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import NeedsChunkIo, run_mutation


async def reserve(context: Context, request: pb.ReserveRequest) -> pb.ReserveReply:
    write_sessions.check_id(request.session)
    if bool(request.length) == bool(request.end):
        raise InvalidArgument(
            f"a reservation has either a length or an end above 0, not length {request.length} and end {request.end}"
        )
    actor = actor_of(request)

    async def work(ns: Namespace) -> pb.ReserveReply | NeedsChunkIo:
        inode = await write_sessions.require(ns, await ns.inode(request.inode), request.session, request.inode)
        offset = inode.length if request.end else max(inode.length, inode.append_end)
        length = max(offset, request.end) if request.end else offset + request.length
        assert length >= inode.length, "neither an append nor an extension makes a file shorter (I11)"
        check_length(inode, length)
        context.quotas.check_growth(inode, length - inode.length)
        before = inode.mode, inode.xattr_bytes
        await privileges.drop_on_write(ns, inode, actor)
        if request.end:
            inode.length = length
            inode.mtime_ns = inode.ctime_ns = context.clock.wall_ns()
            ns.put_inode(inode)
            return pb.ReserveReply(offset=offset, inode=inode)
        reserve_append(inode, request.session, request.length)
        put = ns.put_inode if (inode.mode, inode.xattr_bytes) != before else ns.put_inode_unseen
        put(inode)
        return pb.ReserveReply(offset=offset, inode=inode)

    return await run_mutation(context, methods.RESERVE, request.mutation, work)
