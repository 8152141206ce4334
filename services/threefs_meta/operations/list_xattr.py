"""The names of the extended attributes that an inode has."""

from threefs.wire import meta_pb2 as pb
from threefs_meta import xattrs
from threefs_meta.actors import actor_of
from threefs_meta.context import Context
from threefs_meta.mutations import run_readonly
from threefs_meta.namespace import Namespace
from threefs_meta.walk import find


async def list_xattr(context: Context, request: pb.ListXattrRequest) -> pb.ListXattrReply:
    actor = actor_of(request)

    async def work(names: Namespace) -> pb.ListXattrReply:
        _, inode = await find(names, request.place, actor, follow=request.follow)
        found = await xattrs.listing(names, inode)
        return pb.ListXattrReply(names=[name for name in found if xattrs.is_visible(actor, name)])

    return await run_readonly(context, work)
