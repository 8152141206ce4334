"""What small requests may make a storage service hold is bounded too: whole chunks, whole blocks, tasks per row."""

import asyncio
import dataclasses
import math
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from threefs_storage.chain import resync, successor, writes
from threefs_storage.engine import working_memory
from threefs_storage.engine.content_plan import Kind
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.engine.engine_settings import EngineSettings
from threefs_storage.engine.overlay import OverlayLimits
from threefs_storage.targets import Targets

from tests.harness.chain_harness import (
    CHUNK,
    CHUNK_BYTES,
    OFFLINE,
    SERVING,
    SYNCING,
    Gate,
    TestChain,
    cancelled,
    chain_of,
    target_of,
    until,
)
from tests.harness.chunk_engine import NO_OVERLAYS, update
from threefs.env.buffers import BufferPool
from threefs.env.disk import DIRECT_BYTES, RealDisk
from threefs.errors import InvalidArgument, Overloaded
from threefs.ids import ChainId, ChunkId, NodeId, TargetId
from threefs.routing import Chain, ChainMember, Routing
from threefs.routing import Target as RoutingTarget
from threefs.rpc.methods import WRITE
from threefs.wire import storage_pb2 as pb

MIB = 1 << 20
CHUNKS = [ChunkId(7, number) for number in range(40)]


class Peak:
    """The most that a pool ever had lent."""

    def __init__(self, pool: BufferPool, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        take = pool.take

        def noted(size: int) -> memoryview:
            buffer = take(size)
            self.bytes = max(self.bytes, pool.lent_bytes)
            return buffer

        monkeypatch.setattr(pool, "take", noted)


async def write_all(chain: TestChain, rows: list[pb.ChunkWrite], payload: bytes = b"") -> pb.WriteReply:
    request = pb.WriteRequest(writes=rows)
    return await chain.peers.call(chain[1].address, WRITE, request, timeout_s=30, payload=[payload] if payload else [])


async def test_small_changes_of_many_chunks_take_their_memory_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request of 40 KiB for 1,024 chunks of 64 MiB made a service take 64 GiB."""
    monkeypatch.setattr(working_memory, "CHANGES_BYTES", 4 * MIB)
    async with chain_of(tmp_path, 1) as chain:
        engine = chain[1].target.engine
        peak = Peak(engine._buffers, monkeypatch)
        extend = [chain.row(chunk=c, kind=pb.EXTEND, length=CHUNK_BYTES, checksum=0) for c in CHUNKS]
        reply = await write_all(chain, extend)
        assert not any(result.code for result in reply.results) and MIB <= peak.bytes <= 4 * MIB
        part = [chain.row(b"x" * 100, 5000, chunk=chunk) for chunk in CHUNKS]
        reply = await write_all(chain, part, b"x" * 100 * len(CHUNKS))
        assert not any(result.code for result in reply.results) and peak.bytes <= 4 * MIB
        assert engine._buffers.lent == 0
        for chunk in CHUNKS:
            assert (await chain.read(1, chunk, 4999, 102))[1] == b"\0" + b"x" * 100 + b"\0"


async def test_payloads_that_the_disk_cannot_take_as_they_lie_are_copied_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working_memory, "CHANGES_BYTES", MIB)
    async with chain_of(tmp_path, 1) as chain:
        peak = Peak(chain[1].target.engine._buffers, monkeypatch)
        rows = [chain.row(bytes([c.number]) * 200_001, chunk=c) for c in CHUNKS[:20]]
        payload = b"".join(bytes([chunk.number]) * 200_001 for chunk in CHUNKS[:20])
        reply = await write_all(chain, rows, payload)
        assert not any(result.code for result in reply.results) and 0 < peak.bytes <= MIB + 4 * DIRECT_BYTES
        for chunk in CHUNKS[:20]:
            assert (await chain.read(1, chunk))[1] == bytes([chunk.number]) * 200_001


async def test_parts_of_many_large_blocks_are_read_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working_memory, "READS_BYTES", 64 << 10)
    async with chain_of(tmp_path, 1) as chain:
        for chunk in CHUNKS[:20]:
            await chain.write(bytes([chunk.number]) * 500_000, chunk=chunk)
        chain[1].disk.cold = True
        engine = chain[1].target.engine
        peak = Peak(engine._buffers, monkeypatch)
        hold = chain[1].disk.hold_read = Gate()
        rows = [(chunk, offset, 1000) for chunk in CHUNKS[:20] for offset in (100, 40_000, 90_000)]
        given_up = asyncio.create_task(chain.read_rows(1, rows))
        await hold.reached.wait()
        await cancelled(given_up)
        hold.open.set()
        await until(lambda: engine._buffers.lent == 0)
        reply, content = await chain.read_rows(1, rows)
        assert not any(reply.code)
        assert content == b"".join(bytes([chunk.number]) * 1000 for chunk, _, _ in rows)
        assert 0 < peak.bytes <= 80 << 10 and engine._buffers.lent == 0


async def test_reads_that_wait_hold_no_more_of_the_record_store_than_they_need(tmp_path: Path) -> None:
    """A row of one byte held all small changes of its checksum block, each with all its bytes: 480 KB."""
    async with chain_of(tmp_path, 1, OverlayLimits()) as chain:
        await chain.write(b"a" * 600_000)
        for number in range(8):
            await chain.write(bytes([number]) * 60_000, 8 + number * 400)
        chain[1].disk.cold = True
        hold = chain[1].disk.hold_read = Gate()
        tracemalloc.start()
        try:
            reads = [asyncio.create_task(chain.read_rows(1, [(CHUNK, 100, 1)] * 64)) for _ in range(3)]
            await until(lambda: chain[1].target.engine._buffers.lent == 3 * 64)
            held_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            hold.open.set()
        assert [content for _, content in await asyncio.gather(*reads)] == [bytes(64)] * 3
        assert held_bytes < 8 * MIB, "three small requests held 90 MiB"


@asynccontextmanager
async def engines_of_one_process(directory: Path, count: int) -> AsyncIterator[list[ChunkEngine]]:
    ids = [TargetId(101 + number) for number in range(count)]
    chains = {t: Chain(ChainId(t), 1, (ChainMember(t, SERVING),)) for t in ids}
    routing = Routing(
        version=1,
        cluster_id="c" * 32,
        nodes={},
        tables={},
        targets={t: RoutingTarget(t, NodeId(1), chain.chain_id) for t, chain in chains.items()},
        chains={chain.chain_id: chain for chain in chains.values()},
    )
    disk = RealDisk(threads=2)
    targets = Targets(NodeId(1), directory, disk, EngineSettings(overlay=NO_OVERLAYS))
    await targets.open(routing)
    try:
        yield [target.engine for target in targets]
    finally:
        await targets.close()
        await disk.close()


async def test_all_targets_of_a_process_share_the_memory_for_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk may have a hundred targets: each took as much as one may have."""
    monkeypatch.setattr(working_memory, "CHANGES_BYTES", 2 * MIB)
    async with engines_of_one_process(tmp_path, 6) as engines:
        assert len({id(engine._buffers) for engine in engines}) == 1
        peak = Peak(engines[0]._buffers, monkeypatch)
        changes = [
            engine.stage(chunk, update(engine, chunk, Kind.EXTEND, length=MIB))
            for engine in engines
            for chunk in CHUNKS
        ]
        await asyncio.gather(*changes)
        assert MIB <= peak.bytes <= 2 * MIB and engines[0]._buffers.lent == 0


async def test_a_target_whose_writes_wait_leaves_memory_for_pieces_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its successor does not answer. All of them together have a bound, too."""
    monkeypatch.setattr(working_memory, "JOINED_BYTES", 4 * MIB)
    async with engines_of_one_process(tmp_path, 6) as engines:
        takes = [asyncio.create_task(engine.joined.take(MIB)) for engine in engines for _ in range(3)]
        await asyncio.sleep(0)
        assert [task.done() for task in takes] == [True, False, False] * 4 + [False] * 6
        assert engines[0]._buffers.lent_bytes == 4 * MIB
        for task in takes:
            task.cancel()
        await asyncio.gather(*takes, return_exceptions=True)
        for engine, task in zip(engines[:4], takes[::3], strict=False):
            engine.joined.give(task.result())
        assert not any(engine.joined.lent_bytes for engine in engines)
        engines[5].joined.give(await engines[5].joined.take(4 * MIB))


_BACK = ChainId(2)


class CrossedChains(TestChain):
    """Two services, each of them the head of a chain whose tail is the other one."""

    def routing(self) -> Routing:
        there = super().routing()
        back = Chain(_BACK, 1, (ChainMember(TargetId(202), SERVING), ChainMember(TargetId(102), SERVING)))
        more = {m.target_id: RoutingTarget(m.target_id, NodeId(m.target_id // 100), _BACK) for m in back.members}
        return dataclasses.replace(there, targets={**there.targets, **more}, chains={**there.chains, _BACK: back})

    async def start(self) -> None:
        await super().start()
        for target in [target for replica in self.replicas for target in replica.targets]:
            target.leased_until = math.inf


async def test_heads_towards_each_other_do_not_wait_for_each_others_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has all its memory for pieces lent to changes that wait for the other one."""
    monkeypatch.setattr(working_memory, "JOINED_BYTES", MIB)
    monkeypatch.setattr(working_memory, "CHANGES_BYTES", MIB)
    chain = CrossedChains(tmp_path, 2)
    await chain.start()
    try:
        ends: dict[str, Any] = {"kind": pb.WRITE_PIECES, "pieces": [0, 1, CHUNK_BYTES - 1, 1]}
        calls = []
        for head, number in ((target_of(1), 0), (TargetId(202), 1)):
            rows = [chain.row(b"ab", chunk=chunk, target=head, chain_version=1, **ends) for chunk in CHUNKS[:20]]
            request, payload = pb.WriteRequest(writes=rows), [b"ab" * len(rows)]
            calls.append(
                chain.peers.call(chain.replicas[number].address, WRITE, request, timeout_s=40, payload=payload)
            )
        replies = await asyncio.gather(*calls)
        assert not any(result.code for reply in replies for result in reply.results)
        assert not any(t.engine._buffers.lent or t.engine.joined.lent_bytes for r in chain.replicas for t in r.targets)
    finally:
        await chain.stop()


async def test_chunks_on_their_way_to_a_syncing_successor_have_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each change of a few bytes sends its whole chunk there, and so does the resync."""
    monkeypatch.setattr(successor, "WHOLE_CHUNK_BYTES", 4 * MIB)
    monkeypatch.setattr(resync, "IN_FLIGHT_BYTES", 2 * MIB)
    async with chain_of(tmp_path, 2) as chain:
        for chunk in CHUNKS[:20]:
            await chain.write(bytes(CHUNK_BYTES - 4096), chunk=chunk)
        chain.change((1, SERVING), (2, OFFLINE))
        head = chain[1]
        gate = head.peers.before = Gate()
        for chunk in CHUNKS[:20]:
            await chain.write(b"a", chunk=chunk)
        peak = Peak(head.server.pool, monkeypatch)
        chain.change((1, SERVING), (2, SYNCING))
        await gate.reached.wait()  # by the resync
        await asyncio.sleep(0.1)
        assert MIB <= head.server.pool.lent_bytes <= 2 * MIB
        writes = [asyncio.create_task(chain.write(b"b", 1, chunk=chunk)) for chunk in CHUNKS[:20]]
        await until(lambda: len(head.target.locks) == 20)
        await asyncio.sleep(0.1)
        head.peers.before = None
        gate.open.set()
        await asyncio.gather(*writes)
        await until(lambda: chain[2].target.synced_in_version == chain.version)
        assert peak.bytes <= 5 * MIB
        for chunk in CHUNKS[:20]:
            assert chain[1].state(chunk) == chain[2].state(chunk)


async def test_a_chain_change_ends_the_wait_for_room_of_a_chunk_on_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(successor, "WHOLE_CHUNK_BYTES", MIB)
    monkeypatch.setattr(resync, "_IN_FLIGHT_CHUNKS", 1)
    async with chain_of(tmp_path, 2) as chain:
        for chunk in CHUNKS[:4]:
            await chain.write(bytes(CHUNK_BYTES), chunk=chunk)
        chain.change((1, SERVING), (2, SYNCING))
        await until(lambda: chain[2].target.synced_in_version == chain.version)
        gate = chain[1].peers.before = Gate()
        writes = [asyncio.create_task(chain.write(b"b", 1, chunk=chunk)) for chunk in CHUNKS[:4]]
        await gate.reached.wait()
        await until(lambda: len(chain[1].target.locks) == 4)
        chain.change((1, SERVING), (2, OFFLINE))
        results = await asyncio.gather(*writes)
        assert len(results) == 4, "all are committed without the one that is gone"
        assert all(room._used == 0 and not room._waiting for room in chain[1].storage._craq._successor._budgets)


async def test_rows_of_batches_have_a_bound_of_all_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is a task: a request of 40 KiB took 5 MiB, and 4,096 of them could wait."""
    monkeypatch.setattr(writes, "_MAX_IN_FLIGHT", 133)  # 100 of clients
    async with chain_of(tmp_path, 2) as chain:
        gate = chain[1].peers.before = Gate()
        first = asyncio.create_task(write_all(chain, [chain.row(b"x", chunk=c) for c in CHUNKS], b"x" * 40))
        second = asyncio.create_task(write_all(chain, [chain.row(b"y", chunk=c) for c in CHUNKS], b"y" * 40))
        await gate.reached.wait()
        await until(lambda: chain[1].storage._writes._in_flight == 80)
        third = [chain.row(b"z", chunk=chunk) for chunk in CHUNKS]
        with pytest.raises(Overloaded):
            await write_all(chain, third, b"z" * 40)
        await cancelled(second)
        await until(lambda: chain[1].storage._writes._in_flight == 40)
        chain[1].peers.before = None
        gate.open.set()
        await first
        reply = await write_all(chain, third, b"z" * 40)
        assert not any(result.code for result in reply.results) and chain[1].storage._writes._in_flight == 0


async def test_a_write_with_more_results_than_any_chunk_has_is_refused(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 1) as chain:
        row = chain.row(b"x", entries=[pb.OnceEntry()] * 257)
        with pytest.raises(InvalidArgument, match="257 results"):
            await chain.send(row, b"x")
