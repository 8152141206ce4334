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
from threefs_meta.lease import locks
from threefs_meta.store import keys
from threefs_meta.store.namespace import Namespace

Owner = tuple[bytes, int]  # client, and owner within it

MOST_LOOKED_AT = 64
#: A record that was not renewed for so long is of somebody who does not ask any more.
STALE_TICKS = 3


async def closes_circle(ns: Namespace, me: Owner, inode: int, wanted: pb.FileLock, tick: int) -> bool:
    """Whether somebody in the way of `me` waits, maybe through others, for `me`."""
    todo: list[tuple[Owner, int, pb.FileLock]] = [(me, inode, wanted)]
    seen: set[Owner] = set()
    while todo and len(seen) < MOST_LOOKED_AT:
        waiting, number, lock = todo.pop()
        for holder in await _in_the_way(ns, waiting, number, lock):
            if holder == me:
                return True
            if holder in seen:
                continue
            seen.add(holder)
            wait = await _of(ns, holder)
            if wait is not None and wait.stamp + STALE_TICKS > tick:
                todo.append((holder, wait.inode, wait.lock))
    return False


async def _in_the_way(ns: Namespace, waiting: Owner, inode: int, wanted: pb.FileLock) -> list[Owner]:
    found: list[Owner] = []
    for key, value in await ns.tx.get_range(*keys.locks(inode)):
        client = keys.client_of_lock(key)
        excluding = [held for held in records.decode(value, ClientLocks, key).locks if locks.exclude(held, wanted)]
        found += [(client, held.owner) for held in excluding if (client, held.owner) != waiting]
    return found


async def note(ns: Namespace, who: Owner, inode: int, wanted: pb.FileLock, lease: int, stamp: int) -> bool:
    """Leave a record of the wait; False if there is one that will do."""
    wait = await _of(ns, who)
    if wait is not None and (wait.inode, wait.lock, wait.lease) == (inode, wanted, lease) and wait.stamp >= stamp - 1:
        return False
    record = LockWait(inode=inode, lock=wanted, lease=lease, stamp=stamp)
    ns.tx.set(keys.wait(*who), records.encode(record))
    return True


def forget(ns: Namespace, who: Owner) -> None:
    ns.tx.clear(keys.wait(*who))


async def _of(ns: Namespace, who: Owner) -> LockWait | None:
    key = keys.wait(*who)
    value = await ns.tx.get(key)
    return None if value is None else records.decode(value, LockWait, key)
