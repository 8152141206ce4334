"""Locks across clients."""

import asyncio

import pytest
from threefs_meta.locks import file_locks
from threefs_meta.ops.lock import lock, query_lock
from threefs_meta.store import keys

from tests.harness.meta_harness import CLIENT, MetaBench
from threefs.errors import Locked, NotFound, TooManyLocks
from threefs.wire import meta_pb2 as pb

OTHER = b"o" * 16


async def ask(
    fs: MetaBench, inode: int, kind: pb.LockType, start: int = 0, end: int = file_locks.END, *, owner: int = 1,
    client: bytes = CLIENT, of: pb.LockKind = pb.RECORD_LOCK,
) -> pb.LockReply:  # fmt: skip
    mutation = pb.Mutation(client=client, request=fs.mutation().request)
    wanted = pb.FileLock(kind=of, type=kind, owner=owner, start=start, end=end, pid=7)
    return await lock(fs.context, pb.LockRequest(mutation=mutation, inode=inode, lock=wanted))


async def test_owners_of_one_and_of_several_clients_exclude_each_other(bench: MetaBench) -> None:
    inode = (await bench.create("/a")).inode.inode
    first = await ask(bench, inode, pb.SHARED, 0, 9)
    assert first.held == 1 and first.lease == (await bench.renew(CLIENT)).lease
    await ask(bench, inode, pb.SHARED, 0, 9, owner=2)
    await ask(bench, inode, pb.SHARED, 0, 9, client=OTHER)
    await ask(bench, inode, pb.EXCLUSIVE, 10, 19, client=OTHER)
    await ask(bench, inode, pb.EXCLUSIVE, of=pb.FLOCK)
    for owner, client, start in ((1, CLIENT, 9), (2, CLIENT, 10), (1, OTHER, 0)):
        with pytest.raises(Locked):
            await ask(bench, inode, pb.EXCLUSIVE, start, start, owner=owner, client=client)
    assert (await ask(bench, inode, pb.EXCLUSIVE, 12, 13, client=OTHER)).held == 2
    for owner, client in ((1, CLIENT), (2, CLIENT), (1, OTHER)):
        reply = await ask(bench, inode, pb.UNLOCK, owner=owner, client=client)
        assert reply.held == 0
    assert (await ask(bench, inode, pb.EXCLUSIVE, owner=3, client=OTHER)).held == 1
    await ask(bench, inode, pb.UNLOCK, of=pb.FLOCK)
    await bench.remove("/a")
    await bench.collect_all()
    await ask(bench, inode, pb.UNLOCK, owner=3, client=OTHER)
    assert await bench.engine.begin().get_range(*keys.LOCKS) == []
    with pytest.raises(NotFound):
        await ask(bench, inode, pb.SHARED)


async def test_the_locks_of_a_dead_client_go_with_its_lease(bench: MetaBench) -> None:
    inode = (await bench.create("/a")).inode.inode
    await ask(bench, inode, pb.EXCLUSIVE, client=OTHER)
    await bench.pass_lease()
    await bench.renew(CLIENT)
    with pytest.raises(Locked):
        await ask(bench, inode, pb.SHARED)
    await bench.lease_reaper.reap()
    await ask(bench, inode, pb.SHARED)


async def test_what_was_held_under_an_older_lease_is_not_held(bench: MetaBench) -> None:
    inode = (await bench.create("/a")).inode.inode
    lease = (await ask(bench, inode, pb.EXCLUSIVE, 0, 0)).lease
    await bench.renew(CLIENT, end=lease)
    again = await ask(bench, inode, pb.EXCLUSIVE, 5, 5)
    assert again.held == 1 and again.lease > lease


async def test_there_are_so_many_at_most(bench: MetaBench) -> None:
    inode = (await bench.create("/a")).inode.inode
    for number in range(0, 2 * file_locks.MAX_LOCKS, 2):
        await ask(bench, inode, pb.SHARED, number, number, owner=number % 3)
    with pytest.raises(TooManyLocks):
        await ask(bench, inode, pb.SHARED, 9999, 9999)
    await ask(bench, inode, pb.SHARED, 0, 9999, owner=0)  # one instead of many
    await ask(bench, inode, pb.SHARED, 9999, 9999)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.trouble(conflict_rate=0.1, unknown_rate=0.1)
async def test_one_of_many_gets_it(bench: MetaBench, seed: int) -> None:
    inode = (await bench.create("/a")).inode.inode
    clients = [bytes([number]) * 16 for number in range(8)]
    results = await asyncio.gather(
        *(ask(bench, inode, pb.EXCLUSIVE, client=client) for client in clients), return_exceptions=True
    )
    assert sorted(type(result).__name__ for result in results) == ["LockReply"] + ["Locked"] * 7


async def test_users_that_are_not_the_owner(bench: MetaBench) -> None:
    inode = (await bench.create("/a")).inode.inode

    async def find(client: bytes, owner: int) -> pb.QueryLockReply:
        wanted = pb.FileLock(kind=pb.RECORD_LOCK, type=pb.EXCLUSIVE, owner=owner, end=file_locks.END)
        return await query_lock(bench.context, pb.QueryLockRequest(client=client, inode=inode, lock=wanted))

    await ask(bench, inode, pb.SHARED, 3, 4)
    assert not (await find(CLIENT, 1)).HasField("conflict")
    for client, same in ((CLIENT, True), (OTHER, False)):
        reply = await find(client, 1 if client == OTHER else 2)
        assert (reply.conflict.start, reply.conflict.end, reply.conflict.pid) == (3, 4, 7)
        assert (reply.conflict.type, reply.same_client) == (pb.SHARED, same)


async def test_an_inode_of_the_highest_number_has_no_locks(bench: MetaBench) -> None:
    """Nobody gets that number, but everybody may ask for it."""
    inode = (1 << 64) - 1
    wanted = pb.FileLock(kind=pb.RECORD_LOCK, type=pb.EXCLUSIVE, owner=1, end=file_locks.END)
    request = pb.QueryLockRequest(client=CLIENT, inode=inode, lock=wanted)
    assert not (await query_lock(bench.context, request)).HasField("conflict")
    assert not (await ask(bench, inode, pb.UNLOCK, 0, 1)).held
