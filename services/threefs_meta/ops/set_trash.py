"""Say how long what is removed below a directory is kept. See `trash`."""

from threefs.errors import InvalidArgument, NotADirectory
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import permissions
from threefs_meta.access.credentials import actor_of
from threefs_meta.context import Context
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import find
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import NeedsChunkIo, run_mutation
from threefs_meta.trash import retention

MAX_TRASH_S = 10 * 366 * 24 * 3600


async def set_trash(context: Context, request: pb.SetTrashRequest) -> pb.InodeReply:
    if request.trash_s > MAX_TRASH_S:
        raise InvalidArgument(f"what is removed is kept for at most {MAX_TRASH_S} seconds, not {request.trash_s}")
    actor = actor_of(request)

    async def work(ns: Namespace) -> pb.InodeReply | NeedsChunkIo:
        _, inode = await find(ns, request.place, actor, follow=True)
        shown = paths.shown_place(request.place)
        if inode.type != pb.DIRECTORY:
            raise NotADirectory(f"{shown} is not a directory")
        if inode.trash:
            raise InvalidArgument(f"{shown} is the trash itself")
        permissions.check_owner(inode, actor, shown)
        if request.HasField("trash_s"):
            if request.trash_s:
                await retention.enable(context, ns)
            inode.trash_s = request.trash_s
        else:
            inode.ClearField("trash_s")
        inode.ctime_ns = context.clock.wall_ns()
        ns.put_inode(inode)
        return pb.InodeReply(inode=await ns.with_times(inode))

    return await run_mutation(context, methods.SET_TRASH, request.mutation, work)
