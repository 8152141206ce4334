"""Change the mode, owner and times of an inode."""

import stat

from threefs.errors import AccessDenied, NotSupported, PermissionDenied
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import permissions
from threefs_meta.access.credentials import Credentials, actor_of
from threefs_meta.access.permissions import WRITE
from threefs_meta.context import Context
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import find
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import NeedsChunkIo, run_mutation


async def set_attributes(context: Context, request: pb.SetAttrRequest) -> pb.InodeReply:
    permissions.check_mode(request.mode)
    actor = actor_of(request)

    async def work(ns: Namespace) -> pb.InodeReply | NeedsChunkIo:
        _, inode = await find(ns, request.place, actor, follow=request.follow)
        shown = paths.shown_place(request.place)
        now_ns = context.clock.wall_ns()
        changes = [
            _drop_privileges(inode, request, actor, shown),
            _set_owner(inode, request, actor, shown),
            _set_mode(inode, request, actor, shown),
            _set_times(inode, request, actor, shown, now_ns),
        ]
        if any(changes):  # every user may set nothing, which does not even change ctime
            inode.ctime_ns = now_ns
            ns.put_inode(inode)
            if inode.type == pb.DIRECTORY and _sets_mtime(request):
                ns.set_times(inode.inode, inode.mtime_ns, now_ns)
        return pb.InodeReply(inode=await ns.with_times(inode))

    return await run_mutation(context, methods.SET_ATTR, request.mutation, work)


def _set_owner(inode: pb.Inode, request: pb.SetAttrRequest, actor: Credentials, shown: str) -> bool:
    """Only the super-user gives files away. An owner may choose among its own groups."""
    uid = request.uid if request.HasField("uid") else inode.uid
    gid = request.gid if request.HasField("gid") else inode.gid
    if not (request.HasField("uid") or request.HasField("gid")):
        return False
    permissions.check_owner(inode, actor, shown)
    if not actor.is_super and (uid != inode.uid or (gid != inode.gid and not actor.in_group(gid))):
        raise PermissionDenied(f"{shown}: user {actor.uid} may not give it to user {uid}, group {gid}")
    if inode.type != pb.DIRECTORY:
        permissions.drop_privileges(inode, actor)  # also if the super-user acts, as on Linux
        assert not inode.mode & stat.S_ISUID, "a file that changes its owner lends nobody's rights"
    inode.uid, inode.gid = uid, gid
    return True


def _drop_privileges(inode: pb.Inode, request: pb.SetAttrRequest, actor: Credentials, shown: str) -> bool:
    """Every user may do this if there are no privileges, and a user who may write the file could do it by writing."""
    if not request.drop_privileges or inode.type == pb.DIRECTORY:
        return False
    before = inode.mode
    permissions.drop_privileges(inode, actor)
    if inode.mode == before:
        return False
    if not permissions.permits(inode, actor, WRITE):
        permissions.check_owner(inode, actor, shown)
    return True


def _set_mode(inode: pb.Inode, request: pb.SetAttrRequest, actor: Credentials, shown: str) -> bool:
    if not request.HasField("mode"):
        return False
    permissions.check_owner(inode, actor, shown)
    if inode.type == pb.SYMLINK:
        raise NotSupported(f"{shown} is a symbolic link: its mode has no meaning and cannot be changed")
    mode = request.mode
    assert not mode & ~permissions.MAX_MODE, "the mode of the request was checked"
    if not actor.is_super and not actor.in_group(inode.gid):
        mode &= ~stat.S_ISGID
    inode.mode = mode
    return True


def _set_times(inode: pb.Inode, request: pb.SetAttrRequest, actor: Credentials, shown: str, now_ns: int) -> bool:
    """The owner may choose any time. A user who may write the file may set the present time."""
    explicit = request.HasField("atime_ns") or request.HasField("mtime_ns")
    if not (explicit or request.atime_now or request.mtime_now):
        return False
    if explicit or not (request.atime_now and request.mtime_now):
        permissions.check_owner(inode, actor, shown)
    elif not actor.owns(inode) and not permissions.permits(inode, actor, WRITE):
        raise AccessDenied(f"{shown}: user {actor.uid} is neither its owner nor may write it")
    if request.atime_now or request.HasField("atime_ns"):
        inode.atime_ns = now_ns if request.atime_now else request.atime_ns
    if _sets_mtime(request):
        inode.mtime_ns = now_ns if request.mtime_now else request.mtime_ns
    return True


def _sets_mtime(request: pb.SetAttrRequest) -> bool:
    return request.mtime_now or request.HasField("mtime_ns")
