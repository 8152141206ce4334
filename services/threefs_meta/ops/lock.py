"""Lock, change or unlock a range of a file; and say which lock is in the way of another one (F_GETLK).

All locks on the file are read, so a change of any of them by another client is a conflict. A client's locks are one
record under its lease: when the lease ends, the lease reaper clears the record.
"""

from functools import partial

from threefs.errors import Deadlock, InvalidArgument, Locked, NotFound, TooManyLocks
from threefs.kv import records
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import ClientLocks
from threefs_meta.context import Context
from threefs_meta.lease import leases
from threefs_meta.locks import deadlock, fencing, file_locks
from threefs_meta.store import keys
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import NeedsChunkIo, run_mutation, run_readonly


async def lock(context: Context, request: pb.LockRequest) -> pb.LockReply:
    file_locks.check(request.lock)
    client, requested = request.mutation.client, request.lock
    owner = client, requested.owner
    if request.wait and requested.kind != pb.RECORD_LOCK:
        raise InvalidArgument("only waits for locks of ranges are recorded; ask again for an flock instead")

    async def work(ns: Namespace) -> pb.LockReply | NeedsChunkIo:
        if requested.type != pb.UNLOCK and await ns.inode(request.inode) is None:
            raise NotFound(f"inode {request.inode} does not exist")
        mine, others = await read_locks(ns, request.inode, client)
        lease = await leases.current(ns.tx, client)
        if (
            mine.locks and mine.lease != lease
        ):  # its lease has ended: the locks are lost, and are fenced before they are released
            key = keys.lock(request.inode, client)
            return NeedsChunkIo(partial(fencing.fence_and_release, context, key, _is_under(key, mine.lease)))
        of_other_owners = [one for one in mine.locks if not file_locks.same_owner(one, requested)]
        own = [one for one in mine.locks if file_locks.same_owner(one, requested)]
        if request.end_wait:
            deadlock.clear_wait(ns, owner)
            return pb.LockReply(lease=lease, held=len(own))
        conflict = file_locks.first_conflict([*of_other_owners, *others], requested)
        if conflict is not None:
            if request.wait and await _record_wait(context, ns, request, owner):
                lease = await leases.ensure(ns.tx, client, context.logical_clock.stamp())
                return pb.LockReply(lease=lease, held=len(own), blocked=True)
            raise Locked(f"inode {request.inode} is locked by another owner from byte {conflict.start} on")
        if request.wait:
            deadlock.clear_wait(ns, owner)
        own = file_locks.after_request(own, requested)
        if len(of_other_owners) + len(own) > file_locks.MAX_LOCKS:
            raise TooManyLocks(f"a client has at most {file_locks.MAX_LOCKS} locks on one file; release some")
        if of_other_owners or own:
            lease = await leases.ensure(ns.tx, client, context.logical_clock.stamp())
            assert not mine.locks or mine.lease == lease, "all locks of a client on a file are under one lease (I18)"
            record = ClientLocks(lease=lease, locks=[*of_other_owners, *own])
            ns.tx.set(keys.lock(request.inode, client), records.encode(record))
            return pb.LockReply(lease=lease, held=len(own))
        ns.tx.clear(keys.lock(request.inode, client))
        return pb.LockReply()

    return await run_mutation(context, methods.LOCK, request.mutation, work)


def _is_under(key: bytes, lease: int) -> fencing.IsEnded:
    def is_under(value: bytes | None) -> bool:
        return value is not None and records.decode(value, ClientLocks, key).lease == lease

    return is_under


async def _record_wait(context: Context, ns: Namespace, request: pb.LockRequest, owner: deadlock.LockOwner) -> bool:
    """False if the wait is recorded already. Raises Deadlock."""
    if await deadlock.closes_cycle(ns, owner, request.inode, request.lock, context.logical_clock.tick):
        raise Deadlock(f"an owner of a lock on inode {request.inode} waits for a lock of the owner that asks")
    stamp = context.logical_clock.stamp()
    lease = await leases.ensure(ns.tx, owner[0], stamp)
    return await deadlock.record_wait(ns, owner, request.inode, request.lock, lease, stamp)


async def read_locks(ns: Namespace, inode: int, client: bytes) -> tuple[ClientLocks, list[pb.FileLock]]:
    """The locks of this client on the inode, and those of all others."""
    mine = ClientLocks()
    others: list[pb.FileLock] = []
    for key, value in await ns.tx.get_range(*keys.locks(inode)):
        record = records.decode(value, ClientLocks, key)
        if keys.client_of_lock(key) == client:
            mine = record
        else:
            others += record.locks
    return mine, others


async def query_lock(context: Context, request: pb.QueryLockRequest) -> pb.QueryLockReply:
    """The first lock that conflicts with the one asked for; none if the owner could have it."""
    file_locks.check(request.lock)

    async def work(ns: Namespace) -> pb.QueryLockReply:
        mine, others = await read_locks(ns, request.inode, request.client)
        own = [one for one in mine.locks if not file_locks.same_owner(one, request.lock)]
        conflict = file_locks.first_conflict(own, request.lock)
        if conflict is not None:
            return pb.QueryLockReply(conflict=conflict, same_client=True)
        return pb.QueryLockReply(conflict=file_locks.first_conflict(others, request.lock))

    return await run_readonly(context, work)
