"""The permissions of an inode: decisions without I/O.

As in POSIX there are two errors: AccessDenied where other permission bits would allow the access, PermissionDenied
where only the owner or the super-user may do it.
"""

import stat

from threefs.errors import AccessDenied, InvalidArgument, PermissionDenied
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import acls
from threefs_meta.access.credentials import Credentials

READ, WRITE, EXECUTE = 4, 2, 1
MAX_MODE = 0o7777
SEARCH = EXECUTE  # the same bit of a directory


def check_mode(mode: int) -> None:
    """Raise InvalidArgument unless these can be the permission bits of an inode."""
    if mode > MAX_MODE:
        raise InvalidArgument(f"permission bits go from 0 to {MAX_MODE:#o}, not {mode:#o}")


def check_wanted(wanted: int) -> None:
    """Raise InvalidArgument unless these can be the `wanted` bits of a request."""
    if wanted > READ | WRITE | EXECUTE:
        raise InvalidArgument(f"the wanted access is a sum of 4 (read), 2 (write) and 1 (execute), not {wanted}")


def permits(inode: pb.Inode, actor: Credentials, wanted: int) -> bool:
    """Whether all the `wanted` bits are granted."""
    if actor.is_super:
        return not wanted & EXECUTE or inode.type == pb.DIRECTORY or bool(inode.mode & 0o111)
    # As on Linux, a list whose mask grants nothing does not count: users that it names belong to the others.
    if actor.uid != inode.uid and inode.mode & 0o070 and inode.HasField("access_acl"):
        return acls.permits(inode, actor, wanted)
    return not wanted & ~_granted(inode, actor)


def _granted(inode: pb.Inode, actor: Credentials) -> int:
    """The first class to which the actor belongs decides, even if a later class would grant more."""
    if actor.uid == inode.uid:
        return inode.mode >> 6 & 7
    if actor.in_group(inode.gid):
        return inode.mode >> 3 & 7
    return inode.mode & 7


def check(inode: pb.Inode, actor: Credentials, wanted: int, shown: str) -> None:
    """Raise AccessDenied unless all the `wanted` bits are granted."""
    if not permits(inode, actor, wanted):
        assert not actor.is_super or wanted & EXECUTE, "the super-user lacks nothing but a permission to execute"
        names = {READ: "read", WRITE: "write", EXECUTE: "search" if inode.type == pb.DIRECTORY else "execute"}
        asked = [bit for bit in names if wanted & bit]
        # Different entries of an access list may each grant one bit, and none grant all: then all are missing.
        missing = [bit for bit in asked if not permits(inode, actor, bit)] or asked
        shown_bits = " and ".join(names[bit] for bit in missing)
        raise AccessDenied(f"{shown}: user {actor.uid} has no permission to {shown_bits}")


def check_owner(inode: pb.Inode, actor: Credentials, shown: str) -> None:
    if not actor.owns(inode):
        raise PermissionDenied(f"{shown} belongs to user {inode.uid}, not to user {actor.uid}")


def check_parent(directory: pb.Inode, actor: Credentials, shown: str) -> None:
    """Raise AccessDenied unless the actor may add and remove entries of the directory."""
    check(directory, actor, WRITE | SEARCH, f"the directory {shown}")


def check_sticky(directory: pb.Inode, inode: pb.Inode, actor: Credentials, shown: str) -> None:
    """In a sticky directory, for example /tmp, users remove and rename only their own entries."""
    if directory.mode & stat.S_ISVTX and not actor.owns(inode) and not actor.owns(directory):
        raise PermissionDenied(f"{shown} lies in a sticky directory and belongs to user {inode.uid}")


def check_administrator(root: pb.Inode, actor: Credentials, what: str) -> None:
    """The owner of the root directory has made the cluster, and may set what holds for all of it, as root may."""
    if not actor.owns(root):
        raise PermissionDenied(f"{what} by root or by the owner of /, which is user {root.uid}, not user {actor.uid}")


def drop_privileges(inode: pb.Inode, actor: Credentials) -> None:
    """Clear the set-user-id and set-group-id bits: a user who changes a program must not gain what they grant.

    Set-group-id without group execution has another meaning, and stays while a member of the group acts.
    """
    before = inode.mode
    inode.mode &= ~stat.S_ISUID
    if inode.mode & stat.S_IXGRP or not (actor.is_super or actor.in_group(inode.gid)):
        inode.mode &= ~stat.S_ISGID
    assert not inode.mode & ~before, "privileges are only taken away"


def check_open(inode: pb.Inode, actor: Credentials, request: pb.OpenRequest | pb.CreateRequest, shown: str) -> None:
    """Check that the actor may open the file. A write session or a truncate takes permission to write.

    Raises AccessDenied, and then InvalidArgument for an inode without content.
    """
    wanted = request.access
    if request.session or request.truncate:
        wanted |= WRITE
    check(inode, actor, wanted, shown)
    if request.session and inode.type != pb.FILE:
        raise InvalidArgument(f"{shown} is not a file that can be written")
