"""Read an extended attribute."""

from threefs.wire import meta_pb2 as pb
from threefs_meta.access import xattrs
from threefs_meta.access.credentials import actor_of
from threefs_meta.context import Context
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import find
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import run_readonly


async def get_xattr(context: Context, request: pb.GetXattrRequest) -> pb.GetXattrReply:
    xattrs.check_name(request.name)
    actor = actor_of(request)

    async def work(ns: Namespace) -> pb.GetXattrReply:
        _, inode = await find(ns, request.place, actor, follow=request.follow)
        xattrs.check_read(inode, actor, request.name, paths.shown_place(request.place))
        value = await xattrs.get(ns, inode, request.name)
        if value is None:
            raise xattrs.absent(request.name, request.place)
        return pb.GetXattrReply(value=value)

    return await run_readonly(context, work)
