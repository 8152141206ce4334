"""Who is in the way of a lock."""

from threefs.wire import meta_pb2 as pb
from threefs_meta.context import Context
from threefs_meta.lease import locks
from threefs_meta.ops.lock import read_locks
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import run_readonly


async def query_lock(context: Context, request: pb.QueryLockRequest) -> pb.QueryLockReply:
    locks.check(request.lock)

    async def work(ns: Namespace) -> pb.QueryLockReply:
        mine, others = await read_locks(ns, request.inode, request.client)
        own = [one for one in mine.locks if not locks.same_owner(one, request.lock)]
        conflict = locks.first_conflict(own, request.lock)
        if conflict is not None:
            return pb.QueryLockReply(conflict=conflict, same_client=True)
        return pb.QueryLockReply(conflict=locks.first_conflict(others, request.lock))

    return await run_readonly(context, work)
