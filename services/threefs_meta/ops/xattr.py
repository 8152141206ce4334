"""Read, list, set and remove extended attributes. Access control lists are set and removed like this too.

As on Linux, a list that is removed need not exist, and the mode stays as it is: the group then has what the mask was.
"""

import stat

from threefs.errors import AlreadyExists, InvalidArgument
from threefs.rpc import methods
from threefs.store_disk import check_growth
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import acls, xattrs
from threefs_meta.access.credentials import Credentials, actor_of
from threefs_meta.context import Context
from threefs_meta.lease import write_sessions
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import find, not_found
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import NeedsChunkIo, run_mutation, run_readonly


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


async def list_xattr(context: Context, request: pb.ListXattrRequest) -> pb.ListXattrReply:
    actor = actor_of(request)

    async def work(ns: Namespace) -> pb.ListXattrReply:
        _, inode = await find(ns, request.place, actor, follow=request.follow)
        found = await xattrs.names_of(ns, inode)
        return pb.ListXattrReply(names=[name for name in found if xattrs.is_visible(actor, name)])

    return await run_readonly(context, work)


async def set_xattr(context: Context, request: pb.SetXattrRequest) -> pb.InodeReply:
    xattrs.check_name(request.name)
    xattrs.check_value(request.value)
    if request.create and request.replace:
        raise InvalidArgument("a request may either create an attribute or replace one, not both")
    actor = actor_of(request)

    async def work(ns: Namespace) -> pb.InodeReply | NeedsChunkIo:
        _, inode = await find(ns, request.place, actor, follow=request.follow)
        if not inode.nlink and not await write_sessions.is_open_for_writing(ns, inode.inode):
            # The garbage collector relies on it: an inode that it may free gets no new attributes.
            raise not_found(request.place)
        xattrs.check_write(inode, actor, request.name, paths.shown_place(request.place))
        old = await xattrs.get(ns, inode, request.name)
        if old is None and request.replace:
            raise xattrs.absent(request.name, request.place)
        if old is not None and request.create:
            shown = f"{paths.shown_place(request.place)} has an attribute {paths.shown(request.name)!r}"
            raise AlreadyExists(f"{shown} already")
        check_growth(context.engine)
        if request.name == acls.ACCESS:
            _set_access(inode, actor, request.value)
        elif request.name == acls.DEFAULT:
            inode.default_acl.CopyFrom(acls.parse(request.value))
        else:
            xattrs.put(ns, inode, request.name, request.value, old, paths.shown_place(request.place))
        inode.ctime_ns = context.clock.wall_ns()
        ns.put_inode(inode)
        return pb.InodeReply(inode=await ns.with_times(inode))

    return await run_mutation(context, methods.SET_XATTR, request.mutation, work)


def _set_access(inode: pb.Inode, actor: Credentials, value: bytes) -> None:
    acls.set_access(inode, acls.parse(value))
    if not actor.is_super and not actor.in_group(inode.gid):
        inode.mode &= ~stat.S_ISGID  # as with every change of the mode


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
