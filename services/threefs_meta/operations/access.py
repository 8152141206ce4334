"""Whether a user may do something."""

from threefs.wire import meta_pb2 as pb
from threefs_meta import paths, permissions
from threefs_meta.actors import actor_of
from threefs_meta.arguments import check_access
from threefs_meta.context import Context
from threefs_meta.mutations import run_readonly
from threefs_meta.namespace import Namespace
from threefs_meta.walk import find


async def access(context: Context, request: pb.AccessRequest) -> pb.InodeReply:
    check_access(request.wanted)
    actor = actor_of(request)

    async def work(names: Namespace) -> pb.InodeReply:
        _, inode = await find(names, request.place, actor, follow=request.follow)
        permissions.check(inode, actor, request.wanted, paths.shown_place(request.place))
        return pb.InodeReply(inode=await names.shown(inode))

    return await run_readonly(context, work)
