"""Advisory locks: which exclude each other, and what an owner has after it asked for another one. No I/O.

The two kinds do not see each other. An owner never conflicts with itself: what it asks for replaces what it had of that
range, so locks are upgraded, split and joined as in POSIX.
"""

from collections.abc import Iterable, Sequence

from threefs.errors import InvalidArgument
from threefs.wire import meta_pb2 as pb

MAX_LOCKS = 1024  # of one client on one file
END = (1 << 64) - 1


def check(lock: pb.FileLock) -> None:
    """Raises InvalidArgument."""
    if lock.kind not in (pb.RECORD_LOCK, pb.FLOCK):
        raise InvalidArgument(f"there is no kind {lock.kind} of locks")
    if lock.type not in (pb.UNLOCK, pb.SHARED, pb.EXCLUSIVE):
        raise InvalidArgument(f"there is no type {lock.type} of locks")
    if lock.start > lock.end:
        raise InvalidArgument(f"the range from {lock.start} to {lock.end} is empty")
    if lock.kind == pb.FLOCK and (lock.start, lock.end) != (0, END):
        raise InvalidArgument("a lock of this kind is of the whole file")


def conflicts(held: pb.FileLock, requested: pb.FileLock) -> bool:
    """Whether two owners cannot have both at once."""
    return (
        held.kind == requested.kind
        and pb.EXCLUSIVE in (held.type, requested.type)
        and pb.UNLOCK not in (held.type, requested.type)
        and held.start <= requested.end
        and requested.start <= held.end
    )


def first_conflict(held: Iterable[pb.FileLock], requested: pb.FileLock) -> pb.FileLock | None:
    """The one that begins first."""
    return min((lock for lock in held if conflicts(lock, requested)), key=lambda lock: lock.start, default=None)


def same_owner(one: pb.FileLock, other: pb.FileLock) -> bool:
    return one.kind == other.kind and one.owner == other.owner


def after_request(own: Sequence[pb.FileLock], requested: pb.FileLock) -> list[pb.FileLock]:
    """What an owner has after `wanted`, of what it had: by start, none overlapping, neighbours joined."""
    remaining = []
    for lock in own:
        if lock.start < requested.start:
            remaining.append(_part(lock, lock.start, min(lock.end, requested.start - 1)))
        if lock.end > requested.end:
            remaining.append(_part(lock, max(lock.start, requested.end + 1), lock.end))
    if requested.type != pb.UNLOCK:
        remaining.append(requested)
    remaining.sort(key=lambda lock: lock.start)
    joined: list[pb.FileLock] = []
    for lock in remaining:
        if joined and joined[-1].type == lock.type and joined[-1].end + 1 == lock.start:
            joined[-1] = _part(joined[-1], joined[-1].start, lock.end)
        else:
            joined.append(lock)
    return joined


def _part(lock: pb.FileLock, start: int, end: int) -> pb.FileLock:
    return pb.FileLock(kind=lock.kind, type=lock.type, owner=lock.owner, start=start, end=end, pid=lock.pid)
