"""On whose behalf the kernel asks."""

from typing import Protocol

from threefs.wire import meta_pb2 as pb

_MOST_GROUPS = 1024


class Context(Protocol):
    """What the kernel tells of a process."""

    @property
    def uid(self) -> int: ...
    @property
    def gid(self) -> int: ...
    @property
    def pid(self) -> int: ...
    @property
    def umask(self) -> int: ...


def of(context: Context) -> pb.Caller:
    """The kernel does not tell the supplementary groups, so they are looked up; for root they decide nothing."""
    groups = _groups(context.pid) if context.uid and context.pid else ()
    return pb.Caller(uid=context.uid, gid=context.gid, groups=groups)


def _groups(pid: int) -> list[int]:
    """Of the thread `pid`; none if it is gone, or in a place of which we do not see the processes."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            return groups_in(file.read())
    except OSError:
        return []


def groups_in(status: bytes) -> list[int]:
    """The groups in the text of a `/proc/PID/status`."""
    _, _, rest = status.partition(b"\nGroups:")
    return [int(number) for number in rest.partition(b"\n")[0].split()[:_MOST_GROUPS]]
