"""Whether a user may do something."""

from threefs.wire import meta_pb2 as pb
from threefs_meta.access import permissions
from threefs_meta.access.credentials import actor_of
from threefs_meta.context import Context
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import find
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import run_readonly
from threefs_meta.validation import check_access


async def access(context: Context, request: pb.AccessRequest) -> pb.InodeReply:
    check_access(request.wanted)
    actor = actor_of(request)

    async def work(ns: Namespace) -> pb.InodeReply:
        _, inode = await find(ns, request.place, actor, follow=request.follow)
        permissions.check(inode, actor, request.wanted, paths.shown_place(request.place))
        return pb.InodeReply(inode=await ns.with_times(inode))

    return await run_readonly(context, work)
