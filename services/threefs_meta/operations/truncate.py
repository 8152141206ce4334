"""Make a file exactly so long. How that stays right across crashes and writers is told in `lengths`."""

from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta import paths, permissions
from threefs_meta.actors import actor_of
from threefs_meta.arguments import check_session
from threefs_meta.context import Context
from threefs_meta.lengths import Cut
from threefs_meta.mutations import Outside, mutate
from threefs_meta.namespace import Namespace
from threefs_meta.permissions import WRITE
from threefs_meta.walk import find


async def truncate(context: Context, request: pb.TruncateRequest) -> pb.InodeReply:
    check_session(request.session)
    actor = actor_of(request)
    cut = Cut(context, request.length)

    async def work(names: Namespace) -> pb.InodeReply | Outside:
        _, inode = await find(names, request.place, actor, follow=True)
        if not request.session or not await names.has_session(inode.inode, request.session):
            permissions.check(inode, actor, WRITE, paths.shown_place(request.place))
        first = cut.settle(inode, await names.chains_used(inode))
        if first is not None:
            return first
        permissions.written_by(inode, actor)
        names.put_inode(inode)
        return pb.InodeReply(inode=inode)

    return await mutate(context, methods.TRUNCATE, request.mutation, work)
