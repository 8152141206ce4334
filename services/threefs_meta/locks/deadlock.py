"""Who waits for which lock, so that owners who would wait for each other for ever are told (EDEADLK).

A client that waits asks again and again. The first time, it leaves a record of what it waits for, under its lease; it
renews that as long as it asks, and clears it when it has the lock or gives up. Whoever is about to leave such a record
looks along those of the owners in its way. Two that close a circle at the same moment read each other's record, so one
of them is a conflict and looks again.

Only locks of ranges are looked at, as POSIX has it. A circle of more owners than are looked at is not found: they wait
until somebody gives up.
"""

from threefs.kv import records
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import ClientLocks, LockWait
from threefs_meta.locks import file_locks
from threefs_meta.store import keys
from threefs_meta.store.namespace import Namespace

LockOwner = tuple[bytes, int]  # client, and owner within it

MAX_VISITED = 64
#: A record that was not renewed for so long is of somebody who does not ask any more.
STALE_TICKS = 3


async def closes_cycle(ns: Namespace, owner: LockOwner, inode: int, requested: pb.FileLock, tick: int) -> bool:
    """Whether somebody in the way of `me` waits, maybe through others, for `me`."""
    stack: list[tuple[LockOwner, int, pb.FileLock]] = [(owner, inode, requested)]
    seen: set[LockOwner] = set()
    while stack and len(seen) < MAX_VISITED:
        waiter, number, lock = stack.pop()
        for holder in await _blockers(ns, waiter, number, lock):
            if holder == owner:
                return True
            if holder in seen:
                continue
            seen.add(holder)
            wait = await _wait_of(ns, holder)
            if wait is not None and wait.stamp + STALE_TICKS > tick:
                stack.append((holder, wait.inode, wait.lock))
    return False


async def _blockers(ns: Namespace, waiter: LockOwner, inode: int, requested: pb.FileLock) -> list[LockOwner]:
    found: list[LockOwner] = []
    for key, value in await ns.tx.get_range(*keys.locks(inode)):
        client = keys.client_of_lock(key)
        excluding = [
            other for other in records.decode(value, ClientLocks, key).locks if file_locks.conflicts(other, requested)
        ]
        found += [(client, other.owner) for other in excluding if (client, other.owner) != waiter]
    return found


async def record_wait(
    ns: Namespace, owner: LockOwner, inode: int, requested: pb.FileLock, lease: int, stamp: int
) -> bool:
    """Leave a record of the wait; False if there is one that will do."""
    wait = await _wait_of(ns, owner)
    if (
        wait is not None
        and (wait.inode, wait.lock, wait.lease) == (inode, requested, lease)
        and wait.stamp >= stamp - 1
    ):
        return False
    record = LockWait(inode=inode, lock=requested, lease=lease, stamp=stamp)
    ns.tx.set(keys.wait(*owner), records.encode(record))
    return True


def clear_wait(ns: Namespace, owner: LockOwner) -> None:
    ns.tx.clear(keys.wait(*owner))


async def _wait_of(ns: Namespace, owner: LockOwner) -> LockWait | None:
    key = keys.wait(*owner)
    value = await ns.tx.get(key)
    return None if value is None else records.decode(value, LockWait, key)
