"""A disk that others have filled to the brim: what was durable stays, chunks can be removed, and changes go on as soon
as there is room, without a restart."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from threefs_storage.engine.content_plan import Kind
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.engine.engine_settings import EngineSettings
from threefs_storage.health.target_recovery import TargetRecovery
from threefs_storage.targets import Targets

from tests.harness.chunk_engine import change, opened, put, read_all, update
from tests.harness.small_disk import small_disk as mounted_disk
from threefs.env.clock import CLOCK
from threefs.env.disk import DiskSpace, RealDisk
from threefs.errors import Corrupt, NoSpace
from threefs.ids import ChainId, ChunkId, NodeId, TargetId
from threefs.kv import rocksdb_store
from threefs.kv.table import Table
from threefs.routing import EMPTY, Chain, ChainMember, PublicState
from threefs.routing import Target as RoutingTarget

MIB = 1 << 20
SETTINGS = EngineSettings(ballast_bytes=4 * MIB)
DATA = os.urandom(MIB)
TARGET = TargetId(101)


class Other:
    """Somebody else who uses the disk."""

    def __init__(self, disk: Path) -> None:
        self._path = disk / "other"

    def fill(self) -> None:
        with self._path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(64 << 10))
        with self._path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"\0")

    def leave(self) -> None:
        self._path.unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted_disk(tmp_path / "disk", "64m") as disk:
        yield disk


def engine_on(disk: Path) -> AbstractAsyncContextManager[ChunkEngine]:
    return opened(disk / "target", SETTINGS)


async def put_small(engine: ChunkEngine, chunks: int) -> None:
    """Most of what they take is their records, and the log of these."""
    for number in range(chunks):
        await put(engine, ChunkId(1, number), DATA[: 16 << 10])


async def until_records_fail(engine: ChunkEngine) -> None:
    """Removals need room for nothing but records."""
    with pytest.raises(NoSpace):
        for number in range(100_000):
            await change(engine, ChunkId(9, number), Kind.REMOVE)


async def test_a_table_goes_on_after_a_full_disk_with_all_that_was_written(small_disk: Path) -> None:
    other = Other(small_disk)
    table = await Table.open(small_disk / "table")
    table.write({b"durable": b"1"})
    await table.flush()
    table.write({b"written": b"2"})
    other.fill()
    with pytest.raises(NoSpace):
        while True:
            table.write({b"%d" % table.written: os.urandom(5000)})
    number = table.written
    assert table.get(b"written") == b"2"
    with pytest.raises(NoSpace):
        await table.reopen()
    assert table.get(b"written") == b"2", "as long as there is no room it stays open for reads"
    other.leave()
    waits = asyncio.create_task(table.reopen())
    await asyncio.sleep(0)
    with pytest.raises(NoSpace):
        table.write({b"x": b"1"})
    await waits
    assert table.durable == table.written == number and table.failure is None
    for key in (b"durable", b"written"):
        assert table.get(key) is not None
    assert (table.get(b"%d" % number) is None) and len(table.scan(b"", b"\xff")) == number
    await table.flush(table.write({b"after": b"3"}))
    await table.close()
    table = await Table.open(small_disk / "table")
    assert len(table.scan(b"", b"\xff")) == number + 1
    await table.close()


async def test_a_table_stays_open_for_reads_while_a_quota_refuses_the_room_to_open_it(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocksdb_store, "_free_bytes", lambda directory: 1 << 40)
    other = Other(small_disk)
    table = await Table.open(small_disk / "table")
    for number in range(20):
        table.write({b"%d" % number: DATA})
    other.fill()
    with pytest.raises(NoSpace):
        while True:
            table.write({b"more": DATA[:5000]})
    for _ in range(2):
        with pytest.raises(NoSpace):
            await table.reopen()
        assert table.get(b"7") == DATA
    other.leave()
    await table.reopen()
    assert table.get(b"19") == DATA and not (small_disk / "table" / "room").exists()
    await table.close()


async def test_a_table_that_has_lost_something_takes_no_more_writes(small_disk: Path) -> None:
    other = Other(small_disk)
    table = await Table.open(small_disk / "table")
    other.fill()
    with pytest.raises(NoSpace):
        while True:
            table.write({b"k": os.urandom(5000)})
    other.leave()
    store = table._store

    class Ahead:
        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        def latest_sequence_number(self) -> int:
            return store.latest_sequence_number() + 1

    table._store = Ahead()  # type: ignore[assignment]
    with pytest.raises(Corrupt, match="changes before the disk was full"):
        await table.reopen()
    with pytest.raises(Corrupt):
        table.get(b"k")
    await table.close()
    table = await Table.open(small_disk / "table")  # as after a crash
    table.write({b"k": b"again"})
    await table.close()


async def test_chunks_can_be_removed_from_a_disk_filled_to_the_brim_and_then_there_is_room(small_disk: Path) -> None:
    async with engine_on(small_disk) as engine:
        other = Other(small_disk)
        for number in range(20):
            await put(engine, ChunkId(1, number), DATA)
        other.fill()
        await until_records_fail(engine)
        assert isinstance(engine.failure, NoSpace) and engine.read_only is not None
        assert await read_all(engine, ChunkId(1, 3)) == DATA
        await engine.recover()
        assert engine.failure is None
        if engine.read_only is not None:
            with pytest.raises(NoSpace):
                await put(engine, ChunkId(2, 0), b"for this there is no room")
        for number in range(15):
            await change(engine, ChunkId(1, number), Kind.REMOVE)
        await engine.recover()
        assert engine.read_only is None
        await put(engine, ChunkId(2, 0), b"now there is")
        other.leave()
    async with engine_on(small_disk) as engine:
        assert [await read_all(engine, ChunkId(1, number)) for number in range(20)] == [None] * 15 + [DATA] * 5
        assert await read_all(engine, ChunkId(2, 0)) == b"now there is"


async def test_when_others_leave_the_disk_everything_goes_on(small_disk: Path) -> None:
    async with engine_on(small_disk) as engine:
        other = Other(small_disk)
        await put(engine, ChunkId(1, 0), DATA)
        other.fill()
        await until_records_fail(engine)
        used = engine.space().used_bytes
        for _ in range(3):
            with contextlib.suppress(NoSpace):
                await engine.recover()
                other.fill()
                await until_records_fail(engine)
        with pytest.raises(NoSpace):
            await put(engine, ChunkId(1, 1), DATA)
        assert await read_all(engine, ChunkId(1, 0)) == DATA
        other.leave()
        await engine.recover()
        assert engine.failure is None and engine.read_only is None
        assert engine.space().used_bytes == used, "no block is lost"
        await put(engine, ChunkId(1, 1), DATA)
    async with engine_on(small_disk) as engine:
        assert await read_all(engine, ChunkId(1, 0)) == await read_all(engine, ChunkId(1, 1)) == DATA


async def test_a_chunk_can_be_cut_when_clients_writes_find_no_room(small_disk: Path) -> None:
    async with engine_on(small_disk) as engine:
        number = 0
        with pytest.raises(NoSpace):
            while True:
                await put(engine, ChunkId(1, number), DATA)
                number += 1
        assert engine.failure is None and engine.read_only is not None
        await change(engine, ChunkId(1, 0), Kind.TRUNCATE, length=MIB - 9)
        assert await read_all(engine, ChunkId(1, 0)) == DATA[:-9]
        await change(engine, ChunkId(1, 1), Kind.REMOVE)
        await engine.recover()
        assert engine.read_only is None


async def test_a_block_whose_record_found_no_room_is_free_again(small_disk: Path) -> None:
    async with engine_on(small_disk) as engine:
        other = Other(small_disk)
        for number in range(60):
            await put(engine, ChunkId(1, number), DATA[:60_000])
        for number in range(50):
            await change(engine, ChunkId(1, number), Kind.REMOVE)
        other.fill()
        with pytest.raises(NoSpace):
            for number in range(50):
                chunk = ChunkId(2, number)  # it is only staged: a commit needs no block, but room for its record
                await engine.stage(chunk, update(engine, chunk, Kind.WRITE, DATA[:60_000]), payload=DATA[:60_000])
        assert engine.failure is not None, "there was a block, but no room for its record"
        other.leave()
        await engine.recover()
        assert engine.record(chunk) is None, "the block is of no record"
        await put(engine, ChunkId(3, 0), b"x")
        blocks = engine.space().chunks - 1 + len(engine.pending())
        assert blocks == 10 + number
        assert engine.space().used_bytes == blocks * (64 << 10) + 1


async def test_a_long_log_is_shortened_before_there_is_no_room_for_its_content(tmp_path: Path) -> None:
    """The ballast is smaller. Without it a store that is open takes no removals, and one that is closed stays so."""
    settings = replace(SETTINGS, ballast_bytes=8 * MIB, full_ratio=0.5)
    with mounted_disk(tmp_path / "disk", "128m") as disk:
        other = Other(disk)
        async with opened(disk / "target", settings) as engine:
            await put_small(engine, 1500)
            (disk / "others").write_bytes(bytes(32 * MIB))
            await engine.limit_log(is_nearly_full=True)
            other.fill()
            await until_records_fail(engine)
            await engine.recover()
            assert engine.failure is None
            await change(engine, ChunkId(1, 0), Kind.REMOVE)
        async with opened(disk / "target", settings) as engine:
            assert await read_all(engine, ChunkId(1, 0)) is None
            assert await read_all(engine, ChunkId(1, 7)) == DATA[: 16 << 10]


class QuotaDisk(RealDisk):
    """It says that it has more room than it takes."""

    def space(self, path: Path) -> DiskSpace:
        return replace(super().space(path), capacity_bytes=1 << 40, free_bytes=1 << 39)


async def nothing(engine: ChunkEngine) -> None:
    pass


@asynccontextmanager
async def lone_target(
    place: Path, disk: RealDisk, first: Callable[[ChunkEngine], Awaitable[None]] = nothing
) -> AsyncIterator[ChunkEngine]:
    """The only replica of a chain, whose process looks after its disk, and begins with that when `first` is done."""
    chain = Chain(ChainId(1), 1, (ChainMember(TARGET, PublicState.SERVING),))
    node = NodeId(1)
    routing = replace(EMPTY, targets={TARGET: RoutingTarget(TARGET, node, ChainId(1))}, chains={ChainId(1): chain})
    targets = Targets(node, place, disk, EngineSettings(ballast_bytes=16 * MIB))
    await targets.open(routing)
    recovery = TargetRecovery(targets, clock=CLOCK, report=lambda: None, on_return=lambda target: None)
    await first(targets.get(TARGET).engine)
    recovery.start()
    yield targets.get(TARGET).engine
    await recovery.stop()
    await targets.close()


async def fill_by_predecessor(engine: ChunkEngine) -> None:
    with pytest.raises(NoSpace):
        for number in range(1000):
            chunk = ChunkId(2, number)
            wanted = replace(update(engine, chunk, Kind.WRITE, DATA), admitted=True)
            await engine.stage(chunk, wanted, payload=DATA)
            engine.commit(chunk, 1, 1)


async def until_it_takes_removals(engine: ChunkEngine, chunk: ChunkId) -> None:
    """It may find no room once more, where a quota does not tell how much there is."""
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(NoSpace):
                if engine.failure is None:
                    await change(engine, chunk, Kind.REMOVE)
                    return
            await asyncio.sleep(0.1)


async def test_a_target_whose_disk_its_predecessor_has_filled_takes_removals_again(tmp_path: Path) -> None:
    """It has had no minute for that. With a long log, neither the ballast nor a restart would help, for ever."""
    with mounted_disk(tmp_path / "disk", "256m") as place:
        disk = RealDisk(threads=2)
        async with lone_target(place, disk) as engine:
            await put_small(engine, 1400)
            async with asyncio.timeout(30):
                while await engine._store._table.room_to_open() > 16 * MIB:
                    await asyncio.sleep(0.1)
            await fill_by_predecessor(engine)
            await until_records_fail(engine)
            await until_it_takes_removals(engine, ChunkId(2, 0))
        await disk.close()


async def test_a_target_whose_quota_is_used_up_takes_removals_and_can_be_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing says that the room ends, so the log is long by then."""
    monkeypatch.setattr(rocksdb_store, "_free_bytes", lambda directory: 1 << 39)
    with mounted_disk(tmp_path / "disk", "256m") as place:
        disk = QuotaDisk(threads=2)
        async with lone_target(place, disk) as engine:
            await put_small(engine, 1000)
            async with asyncio.timeout(30):
                while (place / f"target-{TARGET}" / "ballast").stat().st_size <= 16 * MIB:
                    await asyncio.sleep(0.1)
            await fill_by_predecessor(engine)
            await until_records_fail(engine)
            await until_it_takes_removals(engine, ChunkId(2, 0))
        async with lone_target(place, disk) as engine:
            assert await read_all(engine, ChunkId(2, 0)) is None
            assert await read_all(engine, ChunkId(2, 1)) == DATA
        await disk.close()


async def test_a_log_is_kept_short_where_a_quota_does_not_give_the_room_for_a_longer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocksdb_store, "_free_bytes", lambda directory: 1 << 39)
    with mounted_disk(tmp_path / "disk", "40m") as place:
        disk = QuotaDisk(threads=2)

        async def fill(engine: ChunkEngine) -> None:
            (place / "others").write_bytes(bytes(10 * MIB))
            await put_small(engine, 320)

        # While room for a longer log is tried, there is none for chunks for a moment: they are there before.
        async with lone_target(place, disk, fill) as engine:
            async with asyncio.timeout(30):
                while not list((place / f"target-{TARGET}" / "records").glob("*.sst")):
                    await asyncio.sleep(0.1)
            await until_records_fail(engine)
            await until_it_takes_removals(engine, ChunkId(1, 0))
        await disk.close()
