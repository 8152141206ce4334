"""Who may do what: decisions about inodes at hand, without I/O.

Two errors are told apart as in POSIX: AccessDenied where other permission bits would have allowed it, PermissionDenied
where it takes the owner or the super-user.
"""

import stat

from threefs.errors import AccessDenied, InvalidArgument, PermissionDenied
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import acls
from threefs_meta.access.credentials import Credentials

READ, WRITE, EXECUTE = 4, 2, 1
MAX_MODE = 0o7777
SEARCH = EXECUTE  # what the bit means for a directory


def check_mode(mode: int) -> None:
    """Raise InvalidArgument unless these can be the permission bits of an inode."""
    if mode > MAX_MODE:
        raise InvalidArgument(f"permission bits go from 0 to {MAX_MODE:#o}, not {mode:#o}")


def check_wanted(wanted: int) -> None:
    """Raise InvalidArgument unless these can be the `wanted` bits of a request."""
    if wanted > READ | WRITE | EXECUTE:
        raise InvalidArgument(f"what is wanted is made of 4 (read), 2 (write), 1 (execute), not {wanted}")


def permits(inode: pb.Inode, actor: Credentials, wanted: int) -> bool:
    """Whether all the `wanted` bits are granted."""
    if actor.is_super:
        return not wanted & EXECUTE or inode.type == pb.DIRECTORY or bool(inode.mode & 0o111)
    # As on Linux, a list whose mask grants nothing is not looked into: who is only named in it is one of the others.
    if actor.uid != inode.uid and inode.mode & 0o070 and inode.HasField("access_acl"):
        return acls.permits(inode, actor, wanted)
    return not wanted & ~_granted(inode, actor)


def _granted(inode: pb.Inode, actor: Credentials) -> int:
    """The first class that the actor belongs to decides, even if a later one would grant more."""
    if actor.uid == inode.uid:
        return inode.mode >> 6 & 7
    if actor.in_group(inode.gid):
        return inode.mode >> 3 & 7
    return inode.mode & 7


def check(inode: pb.Inode, actor: Credentials, wanted: int, shown: str) -> None:
    """Raise AccessDenied unless all the `wanted` bits are granted."""
    if not permits(inode, actor, wanted):
        names = {READ: "read", WRITE: "write", EXECUTE: "search" if inode.type == pb.DIRECTORY else "execute"}
        asked = [bit for bit in names if wanted & bit]
        # Entries of an access list may grant each bit, and none of them all together: then all are missing.
        missing = [bit for bit in asked if not permits(inode, actor, bit)] or asked
        shown_bits = " and ".join(names[bit] for bit in missing)
        raise AccessDenied(f"{shown}: user {actor.uid} has no permission to {shown_bits}")


def check_owner(inode: pb.Inode, actor: Credentials, shown: str) -> None:
    if not actor.owns(inode):
        raise PermissionDenied(f"{shown} belongs to user {inode.uid}, not to user {actor.uid}")


def check_parent(directory: pb.Inode, actor: Credentials, shown: str) -> None:
    """Raise AccessDenied unless entries of the directory, which is `shown`, may be made and removed."""
    check(directory, actor, WRITE | SEARCH, f"the directory {shown}")


def check_sticky(directory: pb.Inode, inode: pb.Inode, actor: Credentials, shown: str) -> None:
    """In a sticky directory, as /tmp is one, everybody removes and renames only what is theirs."""
    if directory.mode & stat.S_ISVTX and not actor.owns(inode) and not actor.owns(directory):
        raise PermissionDenied(f"{shown} lies in a sticky directory and belongs to user {inode.uid}")


def check_administrator(root: pb.Inode, actor: Credentials, what: str) -> None:
    """Whoever owns the root directory has made the cluster: that user says what holds for all of it, as root does."""
    if not actor.owns(root):
        raise PermissionDenied(f"{what} by root or by the owner of /, which is user {root.uid}, not user {actor.uid}")


def drop_privileges(inode: pb.Inode, actor: Credentials) -> None:
    """Who changes what a program is, must not gain what its set-user-id and set-group-id bits grant.

    Set-group-id without group execution means something else, and stays in the hands of the group.
    """
    inode.mode &= ~stat.S_ISUID
    if inode.mode & stat.S_IXGRP or not (actor.is_super or actor.in_group(inode.gid)):
        inode.mode &= ~stat.S_ISGID


def drop_privileges_on_write(inode: pb.Inode, actor: Credentials) -> None:
    """The content was changed."""
    if not actor.is_super:
        drop_privileges(inode, actor)


def check_open(inode: pb.Inode, actor: Credentials, request: pb.OpenRequest | pb.CreateRequest, shown: str) -> None:
    """Who opens for writing or cuts the file must be permitted to write, whatever else it asks.

    Raises AccessDenied, and then InvalidArgument for what has no content.
    """
    wanted = request.access
    if request.session or request.truncate:
        wanted |= WRITE
    check(inode, actor, wanted, shown)
    if request.session and inode.type != pb.FILE:
        raise InvalidArgument(f"{shown} is not a file that can be written")
