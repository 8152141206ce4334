"""Set the layout of new files in a directory. New directories in it inherit the layout; existing files keep theirs."""

from threefs.errors import NotADirectory
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import permissions
from threefs_meta.access.credentials import actor_of
from threefs_meta.context import Context
from threefs_meta.file import layout_policy
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import find
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import NeedsChunkIo, run_mutation


async def set_layout(context: Context, request: pb.SetLayoutRequest) -> pb.InodeReply:
    actor = actor_of(request)

    async def work(ns: Namespace) -> pb.InodeReply | NeedsChunkIo:
        _, inode = await find(ns, request.place, actor, follow=True)
        if inode.type != pb.DIRECTORY:
            raise NotADirectory(f"{paths.shown_place(request.place)} is not a directory; a file's layout never changes")
        permissions.check_owner(inode, actor, paths.shown_place(request.place))
        inode.layout.CopyFrom(layout_policy.of_directory(context.routing(), request.layout, inode.layout))
        inode.ctime_ns = context.clock.wall_ns()
        ns.put_inode(inode)
        return pb.InodeReply(inode=await ns.with_times(inode))

    return await run_mutation(context, methods.SET_LAYOUT, request.mutation, work)
