"""Settle the length of an open file."""

from collections.abc import Awaitable, Callable

from threefs.errors import NotFound
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import permissions
from threefs_meta.access.credentials import Credentials, actor_of
from threefs_meta.context import Context
from threefs_meta.file.length import LengthReport, Report, end_appends
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import NeedsChunkIo, run_mutation


async def sync(context: Context, request: pb.SyncRequest) -> pb.InodeReply:
    return await run_mutation(context, methods.SYNC, request.mutation, syncing(context, request, actor_of(request)))


def syncing(
    context: Context, request: pb.SyncRequest, actor: Credentials
) -> Callable[[Namespace], Awaitable[pb.InodeReply | NeedsChunkIo]]:
    """The transaction."""
    growth = LengthReport(
        context,
        Report(request.length_hint, request.truncate_version, request.exact, request.written, request.attempted_end),
    )

    async def work(names: Namespace) -> pb.InodeReply | NeedsChunkIo:
        inode = await names.inode(request.inode)
        if inode is None:
            raise NotFound(f"inode {request.inode} does not exist")
        changed = growth.settle(inode)
        if isinstance(changed, NeedsChunkIo):
            return changed
        ended = end_appends(inode, request.session, request.appends_end)
        if changed:
            permissions.written_by(inode, actor)
            names.put_inode(inode)
        elif ended:
            names.put_inode_unseen(inode)
        return pb.InodeReply(inode=inode, over_quota=context.quotas.is_over(inode))

    return work
