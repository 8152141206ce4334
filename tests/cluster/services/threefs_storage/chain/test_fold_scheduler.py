"""Small changes move into blocks when their chunk is at rest, and nobody notices."""

import os
from pathlib import Path

import pytest
from threefs_storage.chain import fold_scheduler
from threefs_storage.engine.chunk_record import Version
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.engine.overlay import BlobKey, OverlayLimits

from tests.harness.chain_harness import CHUNK, OFFLINE, SERVING, SYNCING, Replica, TestChain, chain_of
from threefs.errors import NoSpace
from threefs.ids import ChunkId
from threefs.wire import storage_pb2 as pb

LIMITS = OverlayLimits()
CONTENT = os.urandom(200_000)


async def visit(chain: TestChain, times: int = 1) -> None:
    for _ in range(times):
        for replica in chain.replicas:
            await replica.storage.fold_scheduler.visit(replica.target)


def committed(replica: Replica, chunk: ChunkId = CHUNK) -> Version:
    version = replica.record(chunk).committed
    assert version is not None
    return version


def is_overlaid(chain: TestChain) -> list[bool]:
    return [committed(replica).overlay is not None for replica in chain.replicas]


async def test_a_chunk_is_folded_when_it_has_not_changed_between_two_visits(tmp_path: Path) -> None:
    async with chain_of(tmp_path, overlay=LIMITS) as chain:
        await chain.write(CONTENT)
        await chain.write(b"small", 1000)
        expected = CONTENT[:1000] + b"small" + CONTENT[1005:]
        await visit(chain)
        await chain.write(b"more", 150_000)
        expected = expected[:150_000] + b"more" + expected[150_004:]
        await visit(chain)
        assert is_overlaid(chain) == [True] * 3
        before = [replica.state() for replica in chain.replicas]
        await visit(chain)
        assert is_overlaid(chain) == [False] * 3
        assert [replica.state() for replica in chain.replicas] == before
        assert not any(replica.target.engine.foldable for replica in chain.replicas)
        for node in (1, 2, 3):
            assert await chain.read(node, length=len(expected)) == (3, expected)


async def test_a_target_that_has_left_its_chain_is_folded_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its removal waits until no chunk of it is locked."""
    async with chain_of(tmp_path, overlay=LIMITS) as chain:
        target, scheduler = chain[1].target, chain[1].storage.fold_scheduler
        for number in range(5):
            chunk = ChunkId(CHUNK.inode, number)
            await chain.write(CONTENT, chunk=chunk)
            await chain.write(b"small", 1000, chunk=chunk)
        await scheduler.visit(target)
        fold = target.engine.fold

        async def leaves(chunk: ChunkId) -> bool:
            target.state = None
            return await fold(chunk)

        monkeypatch.setattr(target.engine, "fold", leaves)
        assert len(target.engine.foldable) == 5
        await scheduler.visit(target)
        assert len(target.engine.foldable) == 4
        target.state = SERVING


async def test_the_successor_gets_the_change_and_not_the_chunk(tmp_path: Path) -> None:
    async with chain_of(tmp_path, overlay=LIMITS) as chain:
        await chain.write(CONTENT)
        await chain.write(b"small", 1000)
        for node in (1, 2):
            assert [(w.kind, w.length) for w in chain[node].peers.writes()] == [(pb.WRITE, 200_000), (pb.WRITE, 5)]


async def test_a_syncing_successor_gets_the_whole_chunk(tmp_path: Path) -> None:
    async with chain_of(tmp_path, overlay=LIMITS) as chain:
        await chain.write(CONTENT)
        await chain.write(b"small", 1000)
        chain.change((1, SERVING), (2, SYNCING), (3, OFFLINE))
        await chain.write(b"more", 2000)
        assert chain[1].peers.writes()[-1].kind == pb.REPLACE
        expected = CONTENT[:1000] + b"small" + CONTENT[1005:2000] + b"more" + CONTENT[2004:]
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        assert await chain.read(2, length=len(expected)) == (3, expected)


async def test_small_content_stays_where_it_is(tmp_path: Path) -> None:
    async with chain_of(tmp_path, overlay=LIMITS) as chain:
        await chain.write(b"a" * 5000)
        await chain.write(b"b", 10)
        await visit(chain, 3)
        assert is_overlaid(chain) == [True] * 3
        assert all(committed(replica).block is None for replica in chain.replicas)


async def test_of_too_many_the_oldest_are_folded_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_scheduler, "MAX_FOLDABLE", 2)
    async with chain_of(tmp_path, overlay=LIMITS) as chain:
        for number in range(4):
            await chain.write(CONTENT, chunk=ChunkId(7, number))
            await chain.write(b"small", 10, chunk=ChunkId(7, number))
        await chain.write(b"again", 10, chunk=ChunkId(7, 0))
        await visit(chain)
        for replica in chain.replicas:
            assert list(replica.target.engine.foldable) == [ChunkId(7, 3), ChunkId(7, 0)]


async def test_a_chunk_that_cannot_be_folded_keeps_no_other_one_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chain_of(tmp_path, overlay=LIMITS) as chain:
        for number in range(2):
            await chain.write(CONTENT, chunk=ChunkId(7, number))
            await chain.write(b"small", 10, chunk=ChunkId(7, number))
        fold, refused = ChunkEngine.fold, [ChunkId(7, 0)]

        async def full(self: ChunkEngine, chunk: ChunkId) -> bool:
            if chunk in refused:
                raise NoSpace("no room for a block")
            return await fold(self, chunk)

        monkeypatch.setattr(ChunkEngine, "fold", full)
        await visit(chain, 2)
        assert [list(replica.target.engine.foldable) for replica in chain.replicas] == [[ChunkId(7, 0)]] * 3
        refused.clear()
        await visit(chain)
        assert not any(replica.target.engine.foldable for replica in chain.replicas)


async def test_damage_that_a_fold_meets_is_repaired(tmp_path: Path) -> None:
    async with chain_of(tmp_path, overlay=LIMITS) as chain:
        await chain.write(CONTENT)
        await chain.write(b"small", 1000)
        target = chain[2].target
        table = target.engine._store._table
        table.write({BlobKey(CHUNK, 1).encoded(): b"Small"})
        await visit(chain, 2)
        assert target.damaged_chunks_found == 1
        await chain.idle()
        expected = CONTENT[:1000] + b"small" + CONTENT[1005:]
        assert await chain.read(2, length=len(expected)) == (2, expected)
        assert target.repaired_chunks == 1
