"""Deadlock detection: which lock owner waits for which lock. A wait that would never end is refused (EDEADLK).

A client that waits for a lock asks again and again. Its first request stores a record of the wait, under its lease.
Later requests renew the record, and it is cleared when the client has the lock or gives up. Before a wait is recorded,
the service follows the recorded waits of the owners that block it. Two owners that close a cycle at the same moment
read each other's record, so one transaction is a conflict and runs again.

Only locks of ranges are followed, as POSIX asks for. A cycle of more than MAX_VISITED owners is not found: they wait
until one gives up.
"""

from threefs.errors import Corrupt
from threefs.kv import records
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import ClientLocks, LockWait
from threefs_meta.locks import file_locks
from threefs_meta.store import keys
from threefs_meta.store.namespace import Namespace

LockOwner = tuple[bytes, int]  # client, and owner within it

MAX_VISITED = 64
#: Ticks after which a record that was not renewed is void: its owner has stopped asking.
STALE_TICKS = 3


async def closes_cycle(ns: Namespace, owner: LockOwner, inode: int, requested: pb.FileLock, tick: int) -> bool:
    """Whether an owner that blocks `owner` waits for it, directly or through others."""
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
    """Record that the owner waits; False if a record that is young enough exists."""
    wait = await _wait_of(ns, owner)
    if (
        wait is not None
        and (wait.inode, wait.lock, wait.lease) == (inode, requested, lease)
        and wait.stamp >= stamp - 1
    ):
        return False
    assert lease, "a wait is recorded under a lease, with which it ends"
    record = LockWait(inode=inode, lock=requested, lease=lease, stamp=stamp)
    ns.tx.set(keys.wait(*owner), records.encode(record))
    return True


def clear_wait(ns: Namespace, owner: LockOwner) -> None:
    ns.tx.clear(keys.wait(*owner))


async def _wait_of(ns: Namespace, owner: LockOwner) -> LockWait | None:
    """None also if the record is damaged: at worst a cycle is not found before the owner asks again."""
    key = keys.wait(*owner)
    value = await ns.tx.get(key)
    try:
        return None if value is None else records.decode(value, LockWait, key)
    except Corrupt:
        return None
