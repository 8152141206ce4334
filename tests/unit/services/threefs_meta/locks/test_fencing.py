"""Locks of silent clients go only after nothing can be stored any more that was written under them (I18)."""

from dataclasses import replace

import pytest
from threefs_meta.locks import file_locks
from threefs_meta.ops.lock import lock
from threefs_meta.ops.open import open_inode
from threefs_meta.store import keys

from tests.harness.meta_harness import CLIENT, SESSION, MetaBench, at
from threefs.cluster.chunk_update import ChunkUpdate
from threefs.errors import Locked, NotServing, StaleFence, ThreefsError
from threefs.ids import ChunkId, InodeId, TableId
from threefs.layout import from_wire
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs.wire import storage_pb2

DEAD = b"d" * 16


async def ask(fs: MetaBench, inode: int, kind: pb.LockType, client: bytes) -> pb.LockReply:
    mutation = pb.Mutation(client=client, request=fs.mutation().request)
    wanted = pb.FileLock(kind=pb.FLOCK, type=kind, owner=1, start=0, end=file_locks.END)
    return await lock(fs.context, pb.LockRequest(mutation=mutation, inode=inode, lock=wanted))


async def opened(fs: MetaBench, client: bytes, session: bytes) -> pb.Inode:
    mutation = pb.Mutation(client=client, request=fs.mutation().request)
    return (await open_inode(fs.context, pb.OpenRequest(mutation=mutation, place=at("/a"), session=session))).inode


async def write(fs: MetaBench, inode: pb.Inode, number: int = 0) -> None:
    """As the client does that has opened this."""
    layout = from_wire(inode.layout)
    chain = fs.chunks.chain_of(layout, number)
    chunk = ChunkId(InodeId(inode.inode), number)
    update = ChunkUpdate(chain, chunk, storage_pb2.WRITE, layout.chunk_bytes, 0, 1, b"x", fence=inode.fence + 1)
    await fs.chunks.apply([update], timeout_s=1.0)


async def silent(fs: MetaBench) -> None:
    """So long that the lease of the other has ended."""
    await fs.pass_lease()
    await fs.renew(CLIENT)


async def test_a_client_that_lost_a_lock_cannot_write_when_the_next_one_has_it(bench: MetaBench) -> None:
    await bench.create("/a")
    old, reader = await opened(bench, DEAD, SESSION), await opened(bench, CLIENT, b"r" * 16)
    await ask(bench, old.inode, pb.EXCLUSIVE, DEAD)
    await write(bench, old)
    await silent(bench)
    await write(bench, old)  # nobody else has the lock yet
    await bench.lease_reaper.reap()
    await ask(bench, old.inode, pb.EXCLUSIVE, CLIENT)
    for number in range(4):
        with pytest.raises(StaleFence):
            await write(bench, old, number)
        with pytest.raises(StaleFence):  # nobody else's lock was lost: it asks again
            await write(bench, reader, number)
    fresh = await bench.stat("/a")
    assert fresh.fence == old.fence + 1
    await write(bench, fresh)
    await bench.remove("/a")
    await bench.pass_lease()
    await bench.lease_reaper.reap()
    await bench.collect_all()
    assert not bench.storage.fences and not bench.storage.data


async def test_shared_locks_need_no_fence(bench: MetaBench) -> None:
    await bench.create("/a")
    old = await opened(bench, DEAD, SESSION)
    await ask(bench, old.inode, pb.SHARED, DEAD)
    await silent(bench)
    await bench.lease_reaper.reap()
    await ask(bench, old.inode, pb.EXCLUSIVE, CLIENT)
    assert (await bench.stat("/a")).fence == 0 and not bench.storage.fences


async def test_the_lock_stays_while_a_chain_does_not_answer(bench: MetaBench) -> None:
    await bench.create("/a")
    old = await opened(bench, DEAD, SESSION)
    await ask(bench, old.inode, pb.EXCLUSIVE, DEAD)
    await silent(bench)
    bench.storage.down.update(node.address for node in bench.cluster.routing.nodes.values())
    await bench.lease_reaper.reap()
    with pytest.raises(Locked):
        await ask(bench, old.inode, pb.EXCLUSIVE, CLIENT)
    bench.storage.down.clear()
    await bench.lease_reaper.reap()
    await ask(bench, old.inode, pb.EXCLUSIVE, CLIENT)
    with pytest.raises(StaleFence):
        await write(bench, old)


async def test_a_chain_that_admits_no_writes_is_not_asked(bench: MetaBench) -> None:
    """It would refuse the fence, and each lock would wait for it, while what others held waits for its turn."""
    await bench.create("/a")
    old = await opened(bench, DEAD, SESSION)
    await ask(bench, old.inode, pb.EXCLUSIVE, DEAD)
    await silent(bench)
    routing = bench.cluster.routing
    bench.cluster.learn(replace(routing, min_replicas={TableId(1): len(routing.nodes) + 1}))
    bench.storage.short.update(routing.chains)
    await bench.lease_reaper.reap()
    assert not [call for call in bench.storage.calls if call[1] == methods.WRITE.name]
    with pytest.raises(Locked):
        await ask(bench, old.inode, pb.EXCLUSIVE, CLIENT)
    bench.cluster.learn(routing)
    bench.storage.short.clear()
    await bench.lease_reaper.reap()
    await ask(bench, old.inode, pb.EXCLUSIVE, CLIENT)


@pytest.mark.parametrize("kind", [pb.EXCLUSIVE, pb.UNLOCK])
async def test_a_client_that_returns_does_not_free_its_old_lock_by_a_new_one(
    bench: MetaBench, kind: pb.LockType
) -> None:
    """Its old writes may still be on their way, though it has learned by now that the lock is lost."""
    await bench.create("/a")
    old = await opened(bench, DEAD, SESSION)
    first = await ask(bench, old.inode, pb.EXCLUSIVE, DEAD)
    await bench.renew(DEAD, end=first.lease)
    reply = await ask(bench, old.inode, kind, DEAD)
    assert reply.held == (kind == pb.EXCLUSIVE)
    with pytest.raises(StaleFence):
        await write(bench, old)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.trouble(conflict_rate=0.1, unknown_rate=0.1)
async def test_interrupted_and_repeated_it_ends_the_same(bench: MetaBench, seed: int) -> None:
    await bench.create("/a")
    old = await opened(bench, DEAD, SESSION)
    await ask(bench, old.inode, pb.EXCLUSIVE, DEAD)
    await silent(bench)
    bench.storage.before.extend([lambda *_: NotServing("not now")] * seed)
    for _ in range(3):
        await bench.lease_reaper.reap()
    assert await bench.engine.begin().get_range(*keys.LOCKS) == []
    with pytest.raises(ThreefsError):
        await write(bench, old)
    await write(bench, await bench.stat("/a"))


async def test_an_exact_length_is_asked_behind_a_fence(bench: MetaBench) -> None:
    """A write of unknown outcome that is still on its way is refused when it arrives; other writers go on."""
    await bench.create("/a")
    old = await opened(bench, CLIENT, SESSION)
    await write(bench, old)
    closed = await bench.close(old, SESSION, exact=True, written=True, attempted_end=1)
    assert closed.length == 1
    with pytest.raises(StaleFence):
        await write(bench, old)
    await write(bench, await bench.stat("/a"))


async def test_an_exact_length_waits_for_no_chain_that_admits_no_writes(bench: MetaBench) -> None:
    await bench.create("/a")
    old = await opened(bench, CLIENT, SESSION)
    await write(bench, old)
    bench.cluster.routing = replace(bench.cluster.routing, min_replicas={TableId(1): 4})
    assert (await bench.close(old, SESSION, exact=True, written=True, attempted_end=1)).length == 1
    assert not bench.storage.fences


async def test_only_the_chains_that_a_writer_has_reached_get_a_fence(bench: MetaBench) -> None:
    await bench.create("/a")
    old = await opened(bench, CLIENT, SESSION)
    await write(bench, old)
    await bench.close(old, SESSION, exact=True, written=True, attempted_end=1)
    assert len(bench.storage.fences) == 1


async def test_the_metadata_take_the_fence_of_the_chains_if_they_were_restored(bench: MetaBench) -> None:
    """Otherwise every fence that they give out is refused, and the file can never be written again."""
    await bench.create("/a")
    old = await opened(bench, CLIENT, SESSION)
    for chain in bench.cluster.routing.chains:
        bench.storage.fences[chain, old.inode] = 7
    with pytest.raises(StaleFence):
        await write(bench, old)
    closed = await bench.close(old, SESSION, exact=True, written=True, attempted_end=1)
    assert closed.fence == 7
    await write(bench, closed)
