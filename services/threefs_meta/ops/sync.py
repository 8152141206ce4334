"""Settle the length of an open file (fsync)."""

from collections.abc import Awaitable, Callable

from threefs.errors import NotFound
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import privileges
from threefs_meta.access.credentials import Credentials, actor_of
from threefs_meta.context import Context
from threefs_meta.file.length import LengthReport, LengthUpdate, finish_appends
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import NeedsChunkIo, run_mutation


async def sync(context: Context, request: pb.SyncRequest) -> pb.InodeReply:
    return await run_mutation(
        context, methods.SYNC, request.mutation, sync_transaction(context, request, actor_of(request))
    )


def sync_transaction(
    context: Context, request: pb.SyncRequest, actor: Credentials
) -> Callable[[Namespace], Awaitable[pb.InodeReply | NeedsChunkIo]]:
    """The transaction of one sync."""
    length_update = LengthUpdate(context, LengthReport.of(request))

    async def work(ns: Namespace) -> pb.InodeReply | NeedsChunkIo:
        inode = await ns.inode(request.inode)
        if inode is None:
            raise NotFound(f"inode {request.inode} does not exist")
        changed = length_update.apply(inode)
        if isinstance(changed, NeedsChunkIo):
            return changed
        ended = finish_appends(inode, request.session, (request.appends_version, request.appends_end))
        if changed:
            await privileges.drop_on_write(ns, inode, actor)
            ns.put_inode(inode)
        elif ended:
            ns.put_inode_unseen(inode)
        return pb.InodeReply(inode=inode, over_quota=context.quotas.is_over(inode))

    return work
