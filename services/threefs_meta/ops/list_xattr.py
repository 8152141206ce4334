"""The names of the extended attributes that an inode has."""

from threefs.wire import meta_pb2 as pb
from threefs_meta.access import xattrs
from threefs_meta.access.credentials import actor_of
from threefs_meta.context import Context
from threefs_meta.resolve.resolver import find
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import run_readonly


async def list_xattr(context: Context, request: pb.ListXattrRequest) -> pb.ListXattrReply:
    actor = actor_of(request)

    async def work(ns: Namespace) -> pb.ListXattrReply:
        _, inode = await find(ns, request.place, actor, follow=request.follow)
        found = await xattrs.names_of(ns, inode)
        return pb.ListXattrReply(names=[name for name in found if xattrs.is_visible(actor, name)])

    return await run_readonly(context, work)
