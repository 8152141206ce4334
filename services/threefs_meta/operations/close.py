"""End a write session, and settle the length of the file."""

from collections.abc import Awaitable, Callable

from threefs.errors import SessionLost
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta import permissions
from threefs_meta.actors import Actor, actor_of
from threefs_meta.arguments import check_session
from threefs_meta.context import Context
from threefs_meta.lengths import Growth, Report, widen
from threefs_meta.mutations import Outside, mutate
from threefs_meta.namespace import Namespace


async def close(context: Context, request: pb.CloseRequest) -> pb.InodeReply:
    return await mutate(context, methods.CLOSE, request.mutation, closing(context, request, actor_of(request)))


def closing(
    context: Context, request: pb.CloseRequest, actor: Actor
) -> Callable[[Namespace], Awaitable[pb.InodeReply | Outside]]:
    """The transaction. Raises InvalidArgument."""
    check_session(request.session)
    report = Report(
        request.length_hint, request.truncate_version, request.exact, request.written, request.attempted_end
    )
    growth = Growth(context, report)

    async def work(names: Namespace) -> pb.InodeReply | Outside:
        inode = await names.inode(request.inode)
        if inode is None or (request.session and not await names.has_session(request.inode, request.session)):
            raise SessionLost(f"inode {request.inode} is not open under this write session")
        changed = growth.settle(inode)
        if isinstance(changed, Outside):
            return changed
        before = inode.chains_used
        if request.session:
            widen(inode, report)
        if changed or inode.chains_used != before:
            if changed:
                permissions.written_by(inode, actor)
            names.put_inode(inode)
        if request.session:
            await names.close_session(inode, request.session, context.clock.wall_ns())
        return pb.InodeReply(inode=inode, over_quota=context.quotas.is_over(inode))

    return work
