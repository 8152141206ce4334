"""Set the length of a file. `file/truncation.py` says why that stays right across crashes and concurrent writers."""

from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import permissions, privileges
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
        if request.session:  # permission is not enough: another client may have its locks by now
            shown = paths.shown_place(request.place)
            await write_sessions.require_leased(ns, inode.inode, request.session, request.mutation.client, shown)
        else:
            permissions.check(inode, actor, WRITE, paths.shown_place(request.place))
        first = truncation.apply(ns, inode, await write_sessions.chains_used(context, ns, inode))
        if first is not None:
            return first
        await privileges.drop_on_write(ns, inode, actor)
        ns.put_inode(inode)
        return pb.InodeReply(inode=inode)

    return await run_mutation(context, methods.TRUNCATE, request.mutation, work)
