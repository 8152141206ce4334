"""The user on whose behalf a program acts."""

import os
from collections.abc import Sequence

from threefs.errors import InvalidArgument
from threefs.wire import meta_pb2 as pb

MAX_GROUPS = 1024
#: For calls that the file system makes by itself.
ROOT = pb.Caller(uid=0, gid=0)


def caller_of(uid: int, gid: int, groups: Sequence[int]) -> pb.Caller:
    """Raises InvalidArgument."""
    if len(groups) > MAX_GROUPS:
        raise InvalidArgument(f"a user may be in at most {MAX_GROUPS} groups, not {len(groups)}")
    if any(not 0 <= value < 1 << 32 for value in (uid, gid, *groups)):
        raise InvalidArgument(f"user and group ids are 32-bit numbers: {uid}, {gid}, {list(groups)}")
    return pb.Caller(uid=uid, gid=gid, groups=groups)


def process_caller() -> pb.Caller:
    """The effective user and groups of this process."""
    return pb.Caller(uid=os.geteuid(), gid=os.getegid(), groups=os.getgroups()[:MAX_GROUPS])


def mode_permits_read(caller: pb.Caller, inode: pb.Inode) -> bool:
    """Whether the permission bits permit reading. If not, or if an access list decides, ask the meta service."""
    if not caller.uid:
        return True
    if caller.uid == inode.uid:
        return bool(inode.mode & 0o400)
    if inode.HasField("access_acl"):
        return False
    in_group = inode.gid == caller.gid or inode.gid in caller.groups
    return bool(inode.mode & (0o040 if in_group else 0o004))
