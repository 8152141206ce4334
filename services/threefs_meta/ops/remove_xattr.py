"""Remove an extended attribute or an access control list.

As on Linux a list need not be there, and the mode stays as it is: the group then has what the mask was.
"""

from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import acls, xattrs
from threefs_meta.access.credentials import actor_of
from threefs_meta.context import Context
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import find
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import NeedsChunkIo, run_mutation


async def remove_xattr(context: Context, request: pb.RemoveXattrRequest) -> pb.InodeReply:
    xattrs.check_name(request.name)
    actor = actor_of(request)

    async def work(ns: Namespace) -> pb.InodeReply | NeedsChunkIo:
        _, inode = await find(ns, request.place, actor, follow=request.follow)
        shown = paths.shown_place(request.place)
        if request.name == acls.DEFAULT and inode.type not in (pb.DIRECTORY, pb.SYMLINK):
            return pb.InodeReply(inode=await ns.with_times(inode))
        xattrs.check_write(inode, actor, request.name, shown)
        old = await xattrs.get(ns, inode, request.name)
        if request.name in (acls.ACCESS, acls.DEFAULT):
            inode.ClearField("access_acl" if request.name == acls.ACCESS else "default_acl")
        elif old is None:
            raise xattrs.absent(request.name, request.place)
        else:
            xattrs.remove(ns, inode, request.name, old)
        inode.ctime_ns = context.clock.wall_ns()
        ns.put_inode(inode)
        return pb.InodeReply(inode=await ns.with_times(inode))

    return await run_mutation(context, methods.REMOVE_XATTR, request.mutation, work)
