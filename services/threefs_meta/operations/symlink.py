"""Make a symbolic link. What it points to need not exist."""

from threefs.errors import AlreadyExists
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta import paths
from threefs_meta.context import Context
from threefs_meta.making import new_inode, vacant
from threefs_meta.mutations import Outside, mutate
from threefs_meta.namespace import Namespace
from threefs_meta.walk import walk

_MODE = 0o777


async def symlink(context: Context, request: pb.SymlinkRequest) -> pb.InodeReply:
    paths.check_target(request.target)

    async def work(names: Namespace) -> pb.InodeReply | Outside:
        spot = await walk(names, request.place, follow=False)
        if spot.entry is not None:
            raise AlreadyExists(f"{paths.shown_place(request.place)} exists already")
        vacant(spot, request.place)
        await names.directory(spot.parent)
        inode = await new_inode(context, pb.SYMLINK, _MODE, request.uid, request.gid)
        inode.target = request.target
        inode.length = len(request.target)
        names.add(spot.parent, spot.name, inode)
        return pb.InodeReply(inode=inode)

    return await mutate(context, methods.SYMLINK, request.mutation, work)
