"""On whose behalf the kernel asks."""

from functools import lru_cache

from threefs_fuse.requests import Caller

from threefs.wire import meta_pb2 as pb

_MAX_GROUPS = 1024
_PRIVILEGES = 0o6000  # set-user-id, set-group-id


def from_kernel(caller: Caller) -> pb.Caller:
    """The kernel does not tell all supplementary groups, so they are looked up; for root they decide nothing."""
    if not caller.uid:
        return _super_user(caller.gid)
    return pb.Caller(uid=caller.uid, gid=caller.gid, groups={*caller.groups, *_groups(caller.pid)})


@lru_cache(maxsize=64)
def _super_user(gid: int) -> pb.Caller:
    """Not to be changed."""
    return pb.Caller(uid=0, gid=gid)


def writer(caller: Caller, inode: pb.Inode) -> pb.Caller:
    """The groups are looked up only where they decide whether the file keeps its mode."""
    return from_kernel(caller) if inode.mode & _PRIVILEGES else pb.Caller(uid=caller.uid, gid=caller.gid)


def _groups(pid: int) -> list[int]:
    """Of the thread `pid`; none if it is gone, or in a place of which we do not see the processes."""
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
