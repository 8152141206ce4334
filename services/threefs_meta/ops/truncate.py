"""Make a file exactly so long. How that stays right across crashes and writers is told in `cutting`."""

from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import permissions
from threefs_meta.access.credentials import actor_of
from threefs_meta.access.permissions import WRITE
from threefs_meta.context import Context
from threefs_meta.file.truncation import Truncation
from threefs_meta.lease import write_sessions
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import find
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import NeedsChunkIo, run_mutation


async def truncate(context: Context, request: pb.TruncateRequest) -> pb.InodeReply:
    write_sessions.check_id(request.session)
    actor = actor_of(request)
    truncation = Truncation(context, request.length)

    async def work(ns: Namespace) -> pb.InodeReply | NeedsChunkIo:
        _, inode = await find(ns, request.place, actor, follow=True)
        if request.session:  # its locks may be somebody else's by now, so permission is not enough
            shown = paths.shown_place(request.place)
            await write_sessions.require_leased(ns, inode.inode, request.session, request.mutation.client, shown)
        else:
            permissions.check(inode, actor, WRITE, paths.shown_place(request.place))
        first = truncation.apply(ns, inode, await write_sessions.chains_used(ns, inode))
        if first is not None:
            return first
        permissions.drop_privileges_on_write(inode, actor)
        ns.put_inode(inode)
        return pb.InodeReply(inode=inode)

    return await run_mutation(context, methods.TRUNCATE, request.mutation, work)
