from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from threefs_storage.chain import kept_version
from threefs_storage.chain.tombstone_collector import TombstoneCollector
from threefs_storage.engine.content_plan import Kind
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.engine.record_store import CHAIN_NOTE, RecordStore
from threefs_storage.target import Target

from tests.harness.chunk_engine import change, put, update
from tests.harness.simulated.disk import SimDisk
from tests.harness.simulated.record_table import open_table
from tests.harness.simulated_disk import engine_on, new_disk, simulate
from threefs.env.clock import CLOCK
from threefs.ids import ChainId, ChunkId, NodeId, TargetId
from threefs.routing import EMPTY, Chain, ChainMember, PublicState, Routing
from threefs.routing import Target as RoutedTarget

CHUNK = ChunkId(5, 0)
TARGET, CHAIN = TargetId(101), ChainId(1)


def routing(version: int) -> Routing:
    chain = Chain(CHAIN, version, (ChainMember(TARGET, PublicState.LASTSRV),))
    routed = {TARGET: RoutedTarget(TARGET, NodeId(1), CHAIN, 0)}
    return Routing(version, EMPTY.cluster_id, {}, routed, {CHAIN: chain}, {}, lease_ms=10_000)


async def staged(engine: ChunkEngine) -> None:
    await engine.stage(CHUNK, update(engine, CHUNK, Kind.WRITE, b"new"), payload=b"new")


async def committed(engine: ChunkEngine) -> None:
    record = engine.record(CHUNK)
    assert record is not None and record.pending is not None
    engine.commit(CHUNK, record.pending.version, 1)


async def dropped(engine: ChunkEngine) -> None:
    engine.drop_pending(CHUNK)


async def removed(engine: ChunkEngine) -> None:
    await change(engine, CHUNK, Kind.REMOVE)


async def forgotten(engine: ChunkEngine) -> None:
    engine.forget(CHUNK)


async def lost(engine: ChunkEngine) -> None:
    record = engine.record(CHUNK)
    assert record is not None and record.committed is not None
    engine.mark_lost(CHUNK, record.committed)


async def restored(engine: ChunkEngine) -> None:
    record = engine.record(CHUNK)
    assert record is not None and record.committed is not None
    await engine.restore(CHUNK, record.committed, b"old")


@pytest.mark.parametrize(
    "steps",
    [(staged, committed), (staged, dropped), (removed,), (forgotten,), (lost, restored)],
    ids=lambda steps: " ".join(step.__name__ for step in steps),
)
def test_each_change_of_a_chunk_counts_once_it_is_durable(steps: tuple[Callable[..., Awaitable[None]], ...]) -> None:
    async def main() -> None:
        disk = new_disk()
        engine = await engine_on(disk)
        await put(engine, CHUNK, b"old")
        for step in steps:
            await engine.flush()
            before = engine.generation
            await step(engine)
            await engine.flush()
            assert engine.generation > before
        reported = engine.generation
        engine.drop_pending(CHUNK)
        await staged(engine)
        assert engine.generation > reported
        reported = engine.generation
        engine.drop_pending(CHUNK)
        assert engine.generation == reported, "it is not durable yet"
        disk.cut_power()
        assert (await engine_on(disk)).generation >= reported, "what was reported is not lost"

    simulate(main())


async def write_by_itself(disk: SimDisk, version: int) -> int:
    """A start of a process whose store is refused, and what it writes. Returns the generation that it reports."""
    engine = await engine_on(disk)
    target = Target(TARGET, engine, routing(version).chains[CHAIN])
    await kept_version.save(engine, TARGET, CHAIN, routing(version))
    collector = TombstoneCollector(None, clock=CLOCK)  # type: ignore[arg-type]
    for minute in range(20):
        target.logical_time.observe(minute)
        target.save_logical_time()
        assert not await collector.collect_page(target)
        engine.put_note("scrub", b"%d" % minute)
    for chunk in list(engine.foldable):
        assert await engine.fold(chunk)
    await engine.flush()
    reported = engine.generation
    await engine.close()
    return reported


def test_what_a_process_writes_of_its_own_accord_brings_no_older_copy_up_to_date() -> None:
    async def main() -> None:
        disk = new_disk()
        engine = await engine_on(disk)
        for number in range(40):
            chunk = ChunkId(5, number)
            await put(engine, chunk, bytes(100_000))
            await put(engine, chunk, b"small", 10)
        await engine.flush()
        copy, known_of_copy = disk.copied(), engine.generation
        await put(engine, CHUNK, b"acknowledged")
        seen = engine.generation
        await engine.close()
        disk.restore(copy)
        reported = [await write_by_itself(disk, version) for version in range(1, 9)]
        assert set(reported) == {known_of_copy} and known_of_copy < seen

    simulate(main())


async def of_an_earlier_release(disk: SimDisk, *, version: int) -> int:
    """Such a process works in the store, in that version of the chain. Returns what it reports at the end."""
    table = await open_table(disk, Path("/t/records"))
    store = RecordStore(table, 10)
    rows = {b"\xff" * 14 + CHAIN_NOTE.encode(): b"version %d" % version}
    await table.flush(table.write(rows))
    for number in range(10):
        await table.flush(table.write({ChunkId(6, number).key(): b"a record"}))
    assert store.note(CHAIN_NOTE)
    await table.close()
    return table.durable_change


def test_a_store_is_never_older_than_what_an_earlier_release_has_reported_of_it() -> None:
    async def main() -> None:
        disk = new_disk()
        await (await engine_on(disk)).close()
        reported = 0
        for version in range(1, 4):  # back to the earlier release, and to this one again
            before = reported
            reported = await of_an_earlier_release(disk, version=version)
            assert reported >= before, "nor is it for the earlier one"
            for _ in range(2):
                engine = await engine_on(disk)
                assert engine.generation >= reported
                reported = engine.generation
                engine.put_note("scrub", b"")
                await engine.close()
            engine = await engine_on(disk)
            assert engine.generation == reported, "only once"
            await engine.keep_note(CHAIN_NOTE, b"own version %d" % version)
            await put(engine, CHUNK, b"new")
            reported = engine.generation
            await engine.close()

    simulate(main())


def test_what_waits_for_no_flush_is_not_kept() -> None:
    async def main() -> None:
        store = RecordStore(await open_table(new_disk(), Path("/records")), 4)
        for _ in range(100):
            await store.flush(store.write({CHUNK: None}))
        assert len(store._generation._undurable) <= 1
        assert store.generation == 100

    simulate(main())
