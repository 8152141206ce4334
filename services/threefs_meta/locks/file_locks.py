"""Advisory locks of files (fcntl and flock): which conflict, and what an owner has after a request. No I/O.

The two kinds do not conflict with each other. An owner never conflicts with itself: a request replaces what the owner
had of that range, so locks are upgraded, split and joined as POSIX asks for.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from threefs.errors import InvalidArgument
from threefs.wire import meta_pb2 as pb

MAX_LOCKS = 1024  # of one client on one file
END = (1 << 64) - 1


def check(lock: pb.FileLock) -> None:
    """Raises InvalidArgument."""
    if lock.kind not in (pb.RECORD_LOCK, pb.FLOCK):
        raise InvalidArgument(f"lock kind {lock.kind} does not exist; use RECORD_LOCK or FLOCK")
    if lock.type not in (pb.UNLOCK, pb.SHARED, pb.EXCLUSIVE):
        raise InvalidArgument(f"lock type {lock.type} does not exist; use UNLOCK, SHARED or EXCLUSIVE")
    if lock.start > lock.end:
        raise InvalidArgument(f"the range from {lock.start} to {lock.end} is empty")
    if lock.kind == pb.FLOCK and (lock.start, lock.end) != (0, END):
        raise InvalidArgument(f"an flock covers the whole file, not bytes {lock.start} to {lock.end}")


def conflicts(held: pb.FileLock, requested: pb.FileLock) -> bool:
    """Whether two different owners cannot have both locks at once."""
    return (
        held.kind == requested.kind
        and pb.EXCLUSIVE in (held.type, requested.type)
        and pb.UNLOCK not in (held.type, requested.type)
        and held.start <= requested.end
        and requested.start <= held.end
    )


def first_conflict(held: Iterable[pb.FileLock], requested: pb.FileLock) -> pb.FileLock | None:
    """The conflicting lock that begins first."""
    return min((lock for lock in held if conflicts(lock, requested)), key=lambda lock: lock.start, default=None)


def same_owner(one: pb.FileLock, other: pb.FileLock) -> bool:
    return one.kind == other.kind and one.owner == other.owner


def after_request(own: Sequence[pb.FileLock], requested: pb.FileLock) -> list[pb.FileLock]:
    """The locks of an owner after its request: sorted by start, none overlap, neighbours of one type are joined."""
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
    assert all(one.end < next_.start for one, next_ in pairwise(joined)), "the locks of an owner do not overlap"
    return joined


def _part(lock: pb.FileLock, start: int, end: int) -> pb.FileLock:
    return pb.FileLock(kind=lock.kind, type=lock.type, owner=lock.owner, start=start, end=end, pid=lock.pid)
