"""Attributes of what a path names."""

from threefs.wire import meta_pb2 as pb
from threefs_meta.access.credentials import actor_of
from threefs_meta.context import Context
from threefs_meta.resolve.resolver import find
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import run_readonly


async def stat(context: Context, request: pb.StatRequest) -> pb.InodeReply:
    actor = actor_of(request)

    async def work(ns: Namespace) -> pb.InodeReply:
        _, inode = await find(ns, request.place, actor, follow=request.follow)
        return pb.InodeReply(inode=await ns.with_times(inode))

    return await run_readonly(context, work)
