"""Who is in the way."""

from threefs_meta.lease import locks
from threefs_meta.ops.query_lock import query_lock

from tests.harness.meta_harness import CLIENT, MetaBench
from tests.unit.services.threefs_meta.ops.test_lock import OTHER, ask
from threefs.wire import meta_pb2 as pb


async def test_whoever_is_not_the_owner(bench: MetaBench) -> None:
    inode = (await bench.create("/a")).inode.inode

    async def find(client: bytes, owner: int) -> pb.QueryLockReply:
        wanted = pb.FileLock(kind=pb.RECORD_LOCK, type=pb.EXCLUSIVE, owner=owner, end=locks.END)
        return await query_lock(bench.context, pb.QueryLockRequest(client=client, inode=inode, lock=wanted))

    await ask(bench, inode, pb.SHARED, 3, 4)
    assert not (await find(CLIENT, 1)).HasField("conflict")
    for client, same in ((CLIENT, True), (OTHER, False)):
        reply = await find(client, 1 if client == OTHER else 2)
        assert (reply.conflict.start, reply.conflict.end, reply.conflict.pid) == (3, 4, 7)
        assert (reply.conflict.type, reply.same_client) == (pb.SHARED, same)
