"""Remove an extended attribute or an access control list."""

from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta import acls, paths, xattrs
from threefs_meta.actors import actor_of
from threefs_meta.context import Context
from threefs_meta.mutations import Outside, mutate
from threefs_meta.namespace import Namespace
from threefs_meta.walk import find


async def remove_xattr(context: Context, request: pb.RemoveXattrRequest) -> pb.InodeReply:
    xattrs.check_name(request.name)
    actor = actor_of(request)

    async def work(names: Namespace) -> pb.InodeReply | Outside:
        _, inode = await find(names, request.place, actor, follow=request.follow)
        xattrs.check_write(inode, actor, request.name, paths.shown_place(request.place))
        old = await xattrs.get(names, inode, request.name)
        if old is None:
            raise xattrs.absent(request.name, request.place)
        if request.name == acls.ACCESS:
            _drop_access(inode)
        elif request.name == acls.DEFAULT:
            inode.ClearField("default_acl")
        else:
            xattrs.remove(names, inode, request.name, old)
        inode.ctime_ns = context.clock.wall_ns()
        names.put_inode(inode)
        return pb.InodeReply(inode=await names.shown(inode))

    return await mutate(context, methods.REMOVE_XATTR, request.mutation, work)


def _drop_access(inode: pb.Inode) -> None:
    """The mode alone is left: of its group bits, which were the mask, what the owning group had."""
    group = next(entry.permissions for entry in inode.access_acl.entries if entry.tag == pb.ACL_GROUP)
    inode.mode &= ~0o070 | group << 3
    inode.ClearField("access_acl")
