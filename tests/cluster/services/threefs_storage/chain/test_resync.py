"""A returning replica is brought up to date while writes go on."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from threefs_storage.chain import resync

from tests.cluster.services.threefs_storage.health.test_chunk_repair import flip_content, flip_pending, garble_record
from tests.harness.chain_harness import (
    CHUNK_BYTES,
    CLIENT,
    OFFLINE,
    SERVING,
    SYNCING,
    Gate,
    Replica,
    TestChain,
    cancelled,
    chain_of,
    flip_record,
    refuse,
    target_of,
    until,
)
from threefs.errors import ChunkLost, CorruptChunk, DeadlineExceeded, NotServing, Unavailable, VersionGap
from threefs.ids import ChunkId
from threefs.rpc.methods import INVENTORY, LAST_CHUNK, SPACE_INFO, SYNC_DONE, WRITE
from threefs.wire import storage_pb2 as pb

CHUNKS = [ChunkId(7, number) for number in range(6)]


async def complete(chain: TestChain, node: int) -> None:
    target = chain[node].target
    await until(lambda: target.synced_in_version == target.chain.version)


async def fall_behind(chain: TestChain) -> None:
    """Replica 3 misses changes of all kinds."""
    for chunk in CHUNKS[:4]:
        await chain.write(b"old" * 10, chunk=chunk)
    chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
    await chain.write(b"new", chunk=CHUNKS[1])
    await chain.send(chain.row(chunk=CHUNKS[2], kind=pb.REMOVE))
    await chain.write(b"fresh", chunk=CHUNKS[4])


async def test_what_differs_is_shipped_and_the_rest_is_not(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await fall_behind(chain)
        chain.change((1, SERVING), (2, SERVING), (3, SYNCING))
        await complete(chain, 3)
        shipped = [ChunkId(w.chunk.inode, w.chunk.index) for w in chain[2].peers.writes() if w.kind == pb.REPLACE]
        assert sorted(shipped) == [CHUNKS[1], CHUNKS[2], CHUNKS[4]]
        assert chain[2].target.resync_counts == (5, 5)
        for chunk in CHUNKS[:5]:
            assert resync.row_of(chunk, chain[3].record(chunk)) == resync.row_of(chunk, chain[2].record(chunk))
        chain.change((1, SERVING), (2, SERVING), (3, SERVING))
        assert await chain.read(3, CHUNKS[1]) == (2, b"new" + b"old" * 9)


async def test_what_only_the_successor_has_is_forgotten(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        chain.change((2, SERVING), (1, OFFLINE))
        await chain.write(b"of another time")
        chain.change((1, SERVING), (2, SYNCING))
        await complete(chain, 2)
        assert chain[2].target.engine.inventory(None, 10) == []


async def test_a_wiped_replica_gets_everything_page_by_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync, "MAX_ROWS", 2)
    async with chain_of(tmp_path, 2) as chain:
        chain.change((1, SERVING), (2, OFFLINE))
        for chunk in CHUNKS:
            await chain.write(bytes([chunk.number]) * 100_000, chunk=chunk)
        chain.change((1, SERVING), (2, SYNCING))
        await complete(chain, 2)
        assert [chunk for chunk, _ in chain[2].target.engine.inventory(None, 10)] == CHUNKS
        chain.change((2, SERVING), (1, OFFLINE))
        for chunk in CHUNKS:
            assert await chain.read(2, chunk) == (1, bytes([chunk.number]) * 100_000)


async def test_writes_during_it_go_on_and_are_not_lost(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await fall_behind(chain)
        gate = chain[2].peers.before = Gate()
        chain.change((1, SERVING), (2, SERVING), (3, SYNCING))
        await gate.reached.wait()
        writes = [asyncio.create_task(chain.write(b"meanwhile", chunk=chunk)) for chunk in CHUNKS]
        gate.open.set()
        await asyncio.gather(*writes)
        await complete(chain, 3)
        for chunk in CHUNKS:
            assert resync.row_of(chunk, chain[3].record(chunk)) == resync.row_of(chunk, chain[1].record(chunk))


async def test_it_is_not_done_while_a_chunk_could_not_be_shipped(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await fall_behind(chain)
        failures = 0

        async def sometimes(method: object, request: object) -> None:
            nonlocal failures
            if method is WRITE and failures < 3:
                failures += 1
                await refuse(method, request)
            assert method is not SYNC_DONE or failures == 3

        chain[2].peers.before = sometimes
        chain.change((1, SERVING), (2, SERVING), (3, SYNCING))
        await complete(chain, 3)


async def test_a_change_of_the_chain_ends_the_run_and_the_next_begins_anew(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await fall_behind(chain)
        gate = chain[2].peers.before = Gate(INVENTORY)
        chain.change((1, SERVING), (2, SERVING), (3, SYNCING))
        await gate.reached.wait()
        chain.change((2, SERVING), (3, SYNCING), (1, OFFLINE))
        gate.open.set()
        await complete(chain, 3)
        assert chain[3].target.synced_in_version == chain.version


async def test_nothing_of_it_is_taken_by_a_target_that_serves_or_holds_no_lease(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"kept")
        done = pb.SyncDoneRequest(target=chain[2].target_id, chain_version=chain.version)
        with pytest.raises(NotServing):
            await chain.peers.call(chain[2].address, SYNC_DONE, done, timeout_s=5)
        with pytest.raises(VersionGap, match="forgets nothing"):
            await chain.send(chain.row(node=2, kind=pb.FORGET))
        chain.change((1, SERVING), (2, SYNCING), learned_by=[2])
        chain[2].target.leased_until = 0.0
        with pytest.raises(NotServing, match="lease"):
            await chain.send(chain.row(node=2, kind=pb.FORGET))
        chain[2].target.leased_until = float("inf")
        assert chain[2].committed() == 1 and CLIENT


CONTENT = b"what was written" * 5000


@pytest.mark.parametrize("what", ["content", "record"])
async def test_a_chunk_that_only_the_sole_replica_had_and_has_damaged_is_shipped_as_lost(
    what: str, tmp_path: Path
) -> None:
    """Found by an audit: the resync never ended, and the chain had one replica for ever."""
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(CONTENT)
        await chain.write(b"good", chunk=CHUNKS[1])
        chain.change((1, SERVING), (2, OFFLINE))
        await chain.write(b"!" + CONTENT[1:])
        await (flip_content(chain[1]) if what == "content" else garbled(chain[1]))
        chain.change((1, SERVING), (2, SYNCING))
        async with asyncio.timeout(10):
            await complete(chain, 2)
        chain.change((1, SERVING), (2, SERVING))
        assert await chain.read(2, CHUNKS[1]) == (1, b"good")
        with pytest.raises(ChunkLost):
            await chain.read(2)
        assert [replica.targets.reports()[0].lost_chunks for replica in chain.replicas] == [1, 1]
        await chain.write(bytes(CHUNK_BYTES))
        assert await chain.read(1) == await chain.read(2)
        assert [replica.targets.reports()[0].lost_chunks for replica in chain.replicas] == [0, 0]


async def garbled(replica: Replica) -> None:
    garble_record(replica)


async def test_a_chunk_that_is_damaged_here_and_good_at_the_one_that_syncs_is_taken_from_there(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(CONTENT, seq=1)
        chain.change((1, SERVING), (2, OFFLINE))
        await chain.write(b"other", chunk=CHUNKS[1])
        flip_record(chain[1])
        chain.change((1, SERVING), (2, SYNCING))
        await complete(chain, 2)
        assert (await chain.read(1))[1] == CONTENT
        assert chain[2].state().entries == chain[1].state().entries


async def test_a_good_copy_that_returns_makes_a_lost_chunk_good_everywhere(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await chain.write(CONTENT)
        await chain[3].stop()
        chain.change((1, SERVING), (2, OFFLINE), (3, OFFLINE))
        chain[2].target.engine.forget(CHUNKS[0])  # an exchanged disk
        await flip_content(chain[1])
        chain.change((1, SERVING), (2, SYNCING), (3, OFFLINE))
        await complete(chain, 2)
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        with pytest.raises(ChunkLost):
            await chain.read(2)
        await chain[3].bind()
        await chain[3].begin(chain.routing())
        chain.change((1, SERVING), (2, SERVING), (3, SYNCING))
        await complete(chain, 3)
        await until(lambda: not any(replica.target.engine.lost_chunks for replica in chain.replicas))
        chain.change((1, SERVING), (2, SERVING), (3, SERVING))
        for node in (1, 2, 3):
            assert await chain.read(node) == (1, CONTENT)


async def test_a_lost_chunk_that_is_shipped_leaves_the_good_bytes_that_are_pending_there(tmp_path: Path) -> None:
    """The resync is quicker than the repair: the last good copy was replaced by word that there is none."""
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"before")

        async def unanswered(method: object, request: object) -> None:
            raise Unavailable("the answer is lost")

        chain[1].peers.after = unanswered
        write = asyncio.create_task(chain.write(CONTENT))
        await until(lambda: (chain[1].pending(), chain[2].committed()) == (2, 2))
        await cancelled(write)
        await chain[1].stop()
        chain.change((2, SERVING), (1, OFFLINE))
        await flip_content(chain[2])
        with pytest.raises(CorruptChunk):
            await chain.read(2)
        await until(lambda: len(chain[2].target.engine.lost_chunks) == 1)

        async def no_copies(method: object, request: object) -> None:
            if isinstance(request, pb.FetchChunkRequest):
                raise Unavailable("cut off")

        chain[2].peers.before = no_copies
        await chain[1].restart(chain.routing())
        assert chain[1].pending() == 2
        chain.change((2, SERVING), (1, SYNCING))
        await complete(chain, 1)
        chain[2].peers.before = None
        chain.change((2, SERVING), (1, SERVING))
        await until(lambda: not chain[2].target.engine.lost_chunks and not chain[1].target.engine.lost_chunks)
        for node in (1, 2):
            assert await chain.read(node) == (2, CONTENT)


async def test_a_pending_version_that_the_only_replica_cannot_read_blocks_nothing(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"good", chunk=CHUNKS[1])
        chain.change((1, SERVING), (2, SYNCING))
        await complete(chain, 2)
        await chain.give_up(1, chain.row(CONTENT), CONTENT)
        await flip_pending(chain[1])
        chain[1].peers.before = None
        chain.change((1, SERVING), (2, SYNCING))
        request = pb.LastChunkRequest(target=target_of(1), chain_version=chain.version, inode=8)
        assert not (await chain.peers.call(chain[1].address, LAST_CHUNK, request, timeout_s=5)).found
        async with asyncio.timeout(10):
            await complete(chain, 2)
        assert not chain[1].pending() and CHUNKS[0] in chain[2].target.engine.lost_chunks


async def test_passes_that_leave_something_missing_are_soon_no_progress_any_more(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        chain.change((1, SERVING), (2, OFFLINE))
        await chain.write(b"new")

        async def no_writes(method: Any, request: Any) -> None:
            if method is WRITE:
                raise VersionGap("never")

        target = chain[1].target
        chain[1].peers.before = no_writes
        chain.change((1, SERVING), (2, SYNCING))
        await until(lambda: chain[1].peers.count(INVENTORY) > 5)
        assert target.sync_progress == 3, "one chunk, looked at in each of the first passes"
        (report,) = chain[1].targets.reports()
        assert report.sync_progress == 3
        chain[1].peers.before = None
        await complete(chain, 2)


async def test_a_pass_after_one_that_has_sent_chunks_is_progress(tmp_path: Path) -> None:
    """To compare all chunks of a large target once more may take longer than others wait for a resync without
    progress. A move to it was taken back again and again, although each pass left less to do."""
    async with chain_of(tmp_path, 2) as chain:
        chain.change((1, SERVING), (2, OFFLINE))
        for chunk in CHUNKS:
            await chain.write(b"new", chunk=chunk)
        target = chain[1].target
        progress: list[int] = []

        async def one_of_each_pass(method: Any, request: Any) -> None:
            if method is INVENTORY:
                progress.append(target.sync_progress)
            if method is WRITE and request.writes[0].chunk.index >= len(progress):
                raise VersionGap("not yet")

        chain[1].peers.before = one_of_each_pass
        chain.change((1, SERVING), (2, SYNCING))
        await complete(chain, 2)
        each = len(CHUNKS) + 1  # all are compared, and one is sent
        assert progress == [each * passes for passes in range(len(CHUNKS))]


async def test_a_question_that_waits_behind_chunks_ends_no_pass(tmp_path: Path) -> None:
    """On a slow link, what is sent of one pass holds up the question for room of the next one."""
    async with chain_of(tmp_path, 2) as chain:
        chain.change((1, SERVING), (2, OFFLINE))
        await chain.write(b"new")

        async def no_answer(method: Any, request: Any) -> None:
            if method is SPACE_INFO:
                raise DeadlineExceeded("too late")

        chain[1].peers.before = no_answer
        chain.change((1, SERVING), (2, SYNCING))
        async with asyncio.timeout(10):
            await complete(chain, 2)
