"""Open a file that exists, for reading or with a write session. Directories are opened for reading."""

from threefs.errors import IsADirectory
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import permissions, privileges
from threefs_meta.access.credentials import actor_of
from threefs_meta.access.permissions import check_open
from threefs_meta.context import Context
from threefs_meta.file.truncation import Truncation
from threefs_meta.lease import write_sessions
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import find, not_found
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import NeedsChunkIo, run_mutation, run_readonly


async def open_inode(context: Context, request: pb.OpenRequest) -> pb.OpenReply:
    write_sessions.check_id(request.session)
    permissions.check_wanted(request.access)
    actor = actor_of(request)
    shown = paths.shown_place(request.place)
    truncation = Truncation(context, 0) if request.truncate else None

    async def read(ns: Namespace) -> pb.OpenReply:
        _, inode = await find(ns, request.place, actor, follow=True)
        check_open(inode, actor, request, shown)
        return pb.OpenReply(inode=await ns.with_times(inode))

    async def write(ns: Namespace) -> pb.OpenReply | NeedsChunkIo:
        _, inode = await find(ns, request.place, actor, follow=True)
        if inode.type == pb.DIRECTORY:
            raise IsADirectory(f"{shown} is a directory")
        check_open(inode, actor, request, shown)
        if not inode.nlink:  # the garbage collector relies on it
            raise not_found(request.place)
        if truncation is not None:
            first = truncation.apply(ns, inode, await write_sessions.chains_used(context, ns, inode))
            if first is not None:
                return first
            await privileges.drop_on_write(ns, inode, actor)
            ns.put_inode(inode)
        lease = 0
        if request.session:
            assert inode.nlink and inode.type == pb.FILE, "only a file with a name gets a new session (I10)"
            client = request.mutation.client
            lease = await write_sessions.begin(ns, inode.inode, request.session, client, context.clock.wall_ns())
        return pb.OpenReply(inode=inode, lease=lease, over_quota=context.quotas.is_over(inode))

    if request.session or request.truncate:
        return await run_mutation(context, methods.OPEN, request.mutation, write)
    return await run_readonly(context, read)
