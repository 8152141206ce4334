"""Writes under locks that were taken away (I18), on a chain of three: refused, or done before the fence stands."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.harness.chain_harness import (
    CHUNK,
    OFFLINE,
    SERVING,
    SYNCING,
    Gate,
    Replica,
    TestChain,
    cancelled,
    chain_of,
    until,
)
from threefs.errors import OutcomeUnknown, StaleFence, Unavailable
from threefs.ids import ChunkId
from threefs.layout import FENCE_CHUNK
from threefs.rpc.methods import LAST_CHUNK, LIST_CHUNKS, SCAN_CHUNKS
from threefs.wire import storage_pb2 as pb

FENCE = ChunkId(CHUNK.inode, FENCE_CHUNK)
META = b"m" * 16
OTHER = ChunkId(CHUNK.inode + 1, 0)


async def raise_fence(chain: TestChain, number: int) -> None:
    await chain.send(chain.row(chunk=FENCE, kind=pb.EXTEND, length=number, client=META, chunk_bytes=64 << 20))


async def test_older_writes_are_refused_and_newer_ones_are_not(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await chain.write(b"first", fence=1)
        await raise_fence(chain, 1)
        with pytest.raises(StaleFence):
            await chain.write(b"stale", fence=1)
        await chain.write(b"fresh", fence=2)
        await chain.write(b"F")  # of the meta service, which is under no fence
        await chain.write(b"else", chunk=OTHER, fence=1)
        await raise_fence(chain, 1)  # once more changes nothing
        await chain.write(b"FRESH", fence=2)
        assert await chain.read(3) == (4, b"FRESH")


async def test_a_repeat_gets_the_result_of_the_first_attempt(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        row = chain.row(b"first", fence=1)
        first = await chain.send(row, b"first")
        await raise_fence(chain, 1)
        row.again = True
        assert (await chain.send(row, b"first")).version == first.version


@pytest.mark.parametrize("restarted", [False, True])
async def test_it_holds_at_every_later_head(tmp_path: Path, restarted: bool) -> None:
    async with chain_of(tmp_path) as chain:
        await raise_fence(chain, 7)
        chain.change((2, SERVING), (3, SERVING), (1, OFFLINE))
        if restarted:
            await chain[2].restart(chain.routing())
        with pytest.raises(StaleFence):
            await chain.write(b"stale", fence=7)
        chain.change((3, SERVING), (2, OFFLINE), (1, OFFLINE))
        with pytest.raises(StaleFence):
            await chain.write(b"stale", fence=7)
        await chain.write(b"fresh", fence=8)


async def test_it_comes_with_resync(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        chain.change((1, SERVING), (2, OFFLINE), (3, OFFLINE))
        await raise_fence(chain, 3)
        chain.change((1, SERVING), (2, SYNCING), (3, OFFLINE))
        await until(lambda: chain[2].target.synced_in_version == chain.version)
        chain.change((2, SERVING), (1, OFFLINE), (3, OFFLINE))
        with pytest.raises(StaleFence):
            await chain.write(b"stale", fence=3)


async def test_a_write_that_was_admitted_before_ends_before_the_fence_stands(tmp_path: Path) -> None:
    """Else the next holder of the lock reads what was before, and sees it change then."""
    async with chain_of(tmp_path) as chain:
        await chain.write(b"old", fence=1)
        chain[1].peers.before = gate = Gate()
        writing = asyncio.create_task(chain.write(b"new", fence=1))
        await gate.reached.wait()
        raising = asyncio.create_task(raise_fence(chain, 1))
        await asyncio.sleep(0.2)
        assert not raising.done(), "the write is still on its way along the chain"
        gate.open.set()
        await raising
        assert writing.done() or chain[1].committed() == 2
        assert await chain.read(3) == (2, b"new")
        await writing


async def test_a_write_that_was_given_up_ends_before_the_fence_stands(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await chain.write(b"old", fence=1)
        await chain.give_up(1, chain.row(b"new", fence=1), b"new")
        chain[1].peers.before = None
        await raise_fence(chain, 1)
        assert [chain[node].pending() for node in (1, 2, 3)] == [0, 0, 0]
        assert await chain.read(3) == (2, b"new")


async def test_a_write_that_waits_for_its_chunk_is_judged_when_it_is_its_turn(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        chain[1].peers.before = gate = Gate()
        first = asyncio.create_task(chain.write(b"one", fence=1))
        await gate.reached.wait()
        second = asyncio.create_task(chain.write(b"two", fence=1, client=b"2" * 16))
        await until(lambda: chain[1].target.locks._locks[CHUNK][1] == 2)
        raising = asyncio.create_task(raise_fence(chain, 1))
        await until(lambda: chain[1].target.engine.fences.get(CHUNK.inode) == 1)
        gate.open.set()
        await first
        with pytest.raises(StaleFence):
            await second
        await raising
        assert await chain.read(3) == (1, b"one")


async def refused_by_the_disk_of_the_head(chain: TestChain) -> pb.ChunkWrite:
    """A write under fence 1 that went ahead, and that the head itself does not have."""
    await chain.write(b"x" * 20_000, fence=1)
    chain[1].spoil_block()
    row = chain.row(b"stale", offset=5, fence=1)
    with pytest.raises(OutcomeUnknown):
        await chain.send(row, b"stale")
    await until(lambda: chain[2].pending() == chain[3].pending() == 2 and not len(chain[3].target.locks))
    return row


@pytest.mark.parametrize("heads", [1, 2])
async def test_a_write_that_only_successors_have_is_gone_when_the_fence_stands(tmp_path: Path, heads: int) -> None:
    """The head's disk has refused it. A successor that becomes head would finish it."""
    async with chain_of(tmp_path) as chain:
        await refused_by_the_disk_of_the_head(chain)
        await raise_fence(chain, 1)
        dead = [(node, OFFLINE) for node in range(1, heads + 1)]
        chain.change(*((node, SERVING) for node in range(heads + 1, 4)), *dead)
        head = chain[heads + 1]
        await until(head.target.pending_recovered.is_set)
        assert await chain.read(heads + 1) == (1, b"x" * 20_000)


async def test_a_write_that_a_target_in_the_middle_has_lost_is_gone_when_the_fence_stands(tmp_path: Path) -> None:
    """The head has died, and the next one never had what it sent on."""
    async with chain_of(tmp_path) as chain:
        await refused_by_the_disk_of_the_head(chain)
        async with chain[2].target.locks.hold(CHUNK, 20):
            chain[2].target.drop_early(CHUNK)
        chain.change((2, SERVING), (3, SERVING), (1, OFFLINE))
        await raise_fence(chain, 1)
        chain.change((3, SERVING), (2, OFFLINE), (1, OFFLINE))
        await until(chain[3].target.pending_recovered.is_set)
        assert await chain.read(3) == (1, b"x" * 20_000)


async def test_a_fence_waits_for_a_successor_that_is_staging_an_older_write(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await refused_by_the_disk_of_the_head(chain)
        target = chain[3].target
        async with target.locks.hold(CHUNK, 20):
            raising = asyncio.create_task(raise_fence(chain, 1))
            await until(lambda: target.engine.fences.get(CHUNK.inode) == 1)
            await asyncio.sleep(0.1)
            assert not raising.done()
        await raising
        assert chain[3].pending() == 0


async def test_a_repeat_is_refused_only_when_its_first_attempt_is_gone_everywhere(tmp_path: Path) -> None:
    """Its client would make the change anew. If the head died now, its successor would finish the first attempt too."""
    async with chain_of(tmp_path) as chain:
        row = await refused_by_the_disk_of_the_head(chain)
        row.again = True
        async with chain[2].target.locks.hold(FENCE, 20):
            raising = asyncio.create_task(raise_fence(chain, 1))
            await until(lambda: chain[1].target.engine.fences.get(CHUNK.inode) == 1)
            with pytest.raises(Unavailable):
                await chain.send(row, b"stale")
            assert chain[2].pending() == 2
        await raising
        with pytest.raises(StaleFence):
            await chain.send(row, b"stale")


async def test_what_comes_ahead_after_the_fence_is_not_staged(tmp_path: Path) -> None:
    """It was still on its way when the head told its client that the outcome is unknown."""
    async with chain_of(tmp_path) as chain:
        await chain.write(b"old", fence=1)
        await raise_fence(chain, 1)
        for node in (2, 3):
            with pytest.raises(StaleFence):
                await chain.send_ahead(chain.ahead_row(node, b"stale", 2, fence=1), b"stale")
            assert chain[node].pending() == 0 and not len(chain[node].target.early)
        await chain.send_ahead(chain.ahead_row(2, b"fresh", 2, fence=2), b"fresh")
        assert chain[2].pending() == 2


async def test_what_the_head_admitted_before_the_fence_comes_with_the_forward(tmp_path: Path) -> None:
    """The fence has dropped the early version of it; a forward is judged by the head alone."""
    async with chain_of(tmp_path) as chain:
        await chain.write(b"old", fence=1)
        row = chain.ahead_row(2, b"new", 2, fence=1)
        await chain.send_ahead(row, b"new")
        await raise_fence(chain, 1)
        assert (await chain.send(row, b"new")).version == 2
        assert await chain.read(3) == (2, b"new")


async def test_a_fence_that_does_not_get_along_the_chain_holds_at_the_head_already(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        chain[1].peers.before = gate = Gate()
        raising = asyncio.create_task(raise_fence(chain, 1))
        await gate.reached.wait()
        with pytest.raises(StaleFence):
            await chain.write(b"stale", fence=1)
        gate.open.set()
        await raising
        await cancelled(raising)


async def test_it_is_not_taken_for_a_chunk_of_the_file(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await chain.write(b"content")
        await raise_fence(chain, 5)
        where: dict[str, Any] = {"target": chain[3].target_id, "chain_version": chain.version}
        address = chain[3].address
        last = await chain.peers.call(
            address, LAST_CHUNK, pb.LastChunkRequest(inode=CHUNK.inode, **where), timeout_s=20.0
        )
        assert (last.index, last.length) == (0, 7)
        listed = await chain.peers.call(
            address, LIST_CHUNKS, pb.ListChunksRequest(inode=CHUNK.inode, **where), timeout_s=20.0
        )
        assert list(listed.index) == [0] and not listed.more
        scanned = await chain.peers.call(address, SCAN_CHUNKS, pb.ScanChunksRequest(**where), timeout_s=20.0)
        assert list(scanned.index) == [0]
        await chain.send(chain.row(chunk=FENCE, kind=pb.REMOVE, chunk_bytes=0, client=META))
        assert not any(chain[node].target.engine.fences for node in (1, 2, 3))


def garble_fence(replica: Replica) -> None:
    store = replica.target.engine._store
    data = store._table.get(FENCE.key())
    assert data is not None
    store._table.write({FENCE.key(): bytes(byte ^ 0x55 for byte in data)})
    store._young.clear()
    store._old.clear()


async def lose_fence(chain: TestChain, node: int) -> None:
    """Nobody knows any more which it was: the others were out when it was raised."""
    garble_fence(chain[node])
    await chain[node].restart(chain.routing())
    await until(lambda: not chain[node].target.damaged)
    committed = chain[node].record(FENCE).committed
    assert committed is not None and committed.lost


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_fence_that_was_lost_refuses_all_until_it_is_raised_again(restarted: bool, tmp_path: Path) -> None:
    """It was repaired to 0, so that writes under locks that had been taken away were stored (I18), and no raise of it
    was taken any more."""
    async with chain_of(tmp_path, 2) as chain:
        await raise_fence(chain, 4)
        chain.change((1, SERVING), (2, OFFLINE))
        await raise_fence(chain, 5)
        await lose_fence(chain, 1)
        if restarted:
            await chain[1].restart(chain.routing())
        for fence in (5, 6, 7):
            with pytest.raises(StaleFence):
                await chain.write(b"stale", fence=fence)
        assert not chain[1].target.engine.lost_chunks, "no bytes of a file are lost"
        await raise_fence(chain, 6)
        with pytest.raises(StaleFence):
            await chain.write(b"stale", fence=6)
        await chain.write(b"fresh", fence=7)


async def test_a_member_that_returns_to_a_lost_fence_takes_it_and_its_raise(tmp_path: Path) -> None:
    """Its own is older than a raise may have been that it has not heard of."""
    async with chain_of(tmp_path, 2) as chain:
        await raise_fence(chain, 4)
        chain.change((1, SERVING), (2, OFFLINE))
        await raise_fence(chain, 5)
        await lose_fence(chain, 1)
        chain.change((1, SERVING), (2, SYNCING))
        await until(lambda: chain[2].target.synced_in_version == chain.version)
        chain.change((2, SERVING), (1, OFFLINE))
        with pytest.raises(StaleFence):
            await chain.write(b"stale", fence=5)
        chain.change((2, SERVING), (1, SYNCING))
        await until(lambda: chain[1].target.synced_in_version == chain.version)
        chain.change((2, SERVING), (1, SERVING))
        await raise_fence(chain, 6)
        for node in (1, 2):
            assert chain[node].target.engine.fences[CHUNK.inode] == 6
            record = chain[node].record(FENCE).committed
            assert record is not None and not record.lost
        await chain.write(b"fresh", fence=7)


async def test_the_bytes_of_a_fence_are_known(tmp_path: Path) -> None:
    """They were marked as lost where no member had them, and no raise of the fence was taken any more."""
    async with chain_of(tmp_path, 2) as chain:
        chain.change((1, SERVING), (2, OFFLINE))
        await raise_fence(chain, 5)
        committed = chain[1].record(FENCE).committed
        assert committed is not None and committed.block is not None
        block = committed.block
        path = chain[1].directory / "target-101" / "blocks" / f"{1 << block.bits >> 10}KiB.blocks"
        with path.open("r+b") as file:
            file.seek(block.slot << block.bits)
            file.write(b"\1")
        assert chain[1].target.note_damage(FENCE)
        await until(lambda: chain[1].target.repaired_chunks == 1)
        assert chain[1].target.engine.fences[CHUNK.inode] == 5
        await raise_fence(chain, 6)
        assert chain[1].target.engine.fences[CHUNK.inode] == 6
