"""The user on whose behalf the kernel asks."""

from functools import lru_cache

from threefs_fuse.requests import Caller

from threefs.wire import meta_pb2 as pb

_MAX_GROUPS = 1024
_PRIVILEGES = 0o6000  # set-user-id, set-group-id


def from_kernel(caller: Caller) -> pb.Caller:
    """The caller with all supplementary groups. The kernel does not send all of them, so they are looked up; root needs
    none."""
    if not caller.uid:
        return _super_user(caller.gid)
    return pb.Caller(uid=caller.uid, gid=caller.gid, groups={*caller.groups, *_groups(caller.pid)})


@lru_cache(maxsize=64)
def _super_user(gid: int) -> pb.Caller:
    """Shared: not to be changed."""
    return pb.Caller(uid=0, gid=gid)


def writer(caller: Caller, inode: pb.Inode) -> pb.Caller:
    """The caller of a write. The groups are looked up only if they decide whether the file keeps its mode."""
    return from_kernel(caller) if inode.mode & _PRIVILEGES else pb.Caller(uid=caller.uid, gid=caller.gid)


def _groups(pid: int) -> list[int]:
    """The groups of the thread `pid`. None if it has ended, or runs in a PID namespace that this process cannot see."""
    if not pid:
        return []
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            return groups_in(file.read())
    except OSError:
        return []


def groups_in(status: bytes) -> list[int]:
    """The groups in the text of a `/proc/PID/status`."""
    _, _, rest = status.partition(b"\nGroups:")
    return [int(number) for number in rest.partition(b"\n")[0].split()[:_MAX_GROUPS]]


def mode_after_write(inode: pb.Inode, caller: pb.Caller) -> int:
    """The mode after a write: without set-user-id; and without set-group-id, unless the group may not execute the file
    and the caller is root or a member of the group."""
    mode = inode.mode & ~0o4000
    if mode & 0o010 or (caller.uid and inode.gid != caller.gid and inode.gid not in caller.groups):
        mode &= ~0o2000
    return mode
