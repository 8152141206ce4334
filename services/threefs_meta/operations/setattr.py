"""Change mode, owner, times."""

from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta.arguments import check_mode
from threefs_meta.context import Context
from threefs_meta.mutations import Outside, mutate
from threefs_meta.namespace import Namespace
from threefs_meta.walk import find

_FIELDS = ("mode", "uid", "gid", "atime_ns", "mtime_ns")


async def set_attributes(context: Context, request: pb.SetAttrRequest) -> pb.InodeReply:
    check_mode(request.mode)

    async def work(names: Namespace) -> pb.InodeReply | Outside:
        _, inode = await find(names, request.place, follow=request.follow)
        await names.with_times(inode)
        for field in _FIELDS:
            if request.HasField(field):
                setattr(inode, field, getattr(request, field))
        inode.ctime_ns = context.clock.wall_ns()
        names.put_inode(inode)
        if inode.type == pb.DIRECTORY:
            names.set_times(inode.inode, inode.mtime_ns, inode.ctime_ns)
        return pb.InodeReply(inode=inode)

    return await mutate(context, methods.SET_ATTR, request.mutation, work)
