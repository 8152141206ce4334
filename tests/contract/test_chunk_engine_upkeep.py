"""An engine whose disk is full, or fails, while nobody changes a chunk."""

import asyncio

import pytest
from threefs_storage.engine.chunk_record import Record
from threefs_storage.engine.content_plan import Kind
from threefs_storage.engine.engine import MAX_UNREADABLE, ChunkEngine
from threefs_storage.engine.engine_settings import EngineSettings

from tests.harness.chunk_engine import NO_OVERLAYS, change, put, read_all, update
from tests.harness.simulated.disk import SimDisk
from tests.harness.simulated_disk import engine_on, new_disk, simulate
from threefs.errors import Corrupt, DiskFailed, NoSpace, ThreefsError
from threefs.ids import ChunkId

CHUNK = ChunkId(7, 0)
DATA = b"x" * 70_000


async def refused(engine: ChunkEngine, what: str) -> None:
    """A change whose record finds no room when it is to be made durable. The table has the record."""
    table = engine._store._table

    async def refuse(number: int | None = None) -> None:
        table.failure = NoSpace("full")
        raise NoSpace("full")

    with pytest.MonkeyPatch.context() as patched:
        version = await put(engine, CHUNK, DATA)
        if what == "replace":
            await engine.stage(CHUNK, update(engine, CHUNK, Kind.WRITE, DATA), payload=DATA)
        await engine.flush()
        patched.setattr(table, "flush", refuse)
        with pytest.raises(NoSpace):
            if what == "replace":
                wanted = update(engine, CHUNK, Kind.REPLACE, DATA, version=3, chain_version=2)
                await engine.stage(CHUNK, wanted, payload=DATA)
            else:
                await engine.restore(CHUNK, version, DATA)


@pytest.mark.parametrize("what", ["replace", "restore"])
def test_no_block_is_lost_when_the_new_record_finds_no_room(what: str) -> None:
    """The table has it when it takes changes again, so the block that only the old record names is free."""

    async def main() -> None:
        engine = await engine_on(new_disk(), settings=EngineSettings(overlay=NO_OVERLAYS))
        await refused(engine, what)
        await engine.recover()
        assert engine.failure is None and await read_all(engine, CHUNK) == DATA
        engine.drop_pending(CHUNK)
        await change(engine, CHUNK, Kind.REMOVE)
        assert engine.space().used_bytes == 0

    simulate(main())


async def full_engine(disk: SimDisk) -> ChunkEngine:
    """Its table takes no more changes until it recovers."""
    engine = await engine_on(disk, settings=EngineSettings(ballast_bytes=16 << 20))
    await put(engine, CHUNK, DATA)
    engine._store._table.failure = NoSpace("full")
    engine.fail(NoSpace("full"))
    return engine


def test_a_disk_that_fails_while_room_is_looked_for_stays_failed() -> None:
    """Another target on it may have met that. One that took changes again would return to its chain."""

    async def main() -> None:
        engine = await full_engine(new_disk())
        recovering = asyncio.create_task(engine.recover())
        await asyncio.sleep(0)
        engine.fail(DiskFailed("a sync of another target has failed"))
        await recovering
        assert isinstance(engine.failure, DiskFailed)

    simulate(main())


@pytest.mark.parametrize("step", ["recovery", "limit of the log"])
def test_a_disk_that_fails_in_upkeep_has_failed(step: str) -> None:
    async def main() -> None:
        disk = new_disk()
        engine = await full_engine(disk)
        if step != "recovery":
            await engine.recover()
        failures: list[ThreefsError] = []
        engine.on_failure = failures.append
        disk.failing.add("allocate")
        with pytest.raises(DiskFailed), pytest.MonkeyPatch.context() as patched:
            if step == "recovery":
                await engine.recover()
            patched.setattr(engine._store._table, "room_to_open", needs_much)
            await engine.limit_log(is_nearly_full=False)
        assert isinstance(engine.failure, DiskFailed) and failures == [engine.failure]

    simulate(main())


async def needs_much() -> int:
    return 64 << 20


@pytest.mark.parametrize("asked", ["read_only", "room_bytes"])
def test_a_disk_that_does_not_say_what_room_it_has_has_failed(asked: str) -> None:
    """Heartbeats and the task that looks after full targets ask for it: an error would end their process."""

    async def main() -> None:
        disk = new_disk(64 << 20)
        engine = await engine_on(disk, settings=EngineSettings(overlay=NO_OVERLAYS))
        with pytest.raises(NoSpace):
            for number in range(1000):
                await put(engine, ChunkId(1, number), DATA)
        assert engine.read_only is not None, "a block was refused"
        disk.failing.add("space")
        getattr(engine, asked)
        assert isinstance(engine.failure, DiskFailed)
        assert engine.read_only is None and engine.room_bytes == 0

    simulate(main())


def test_a_block_is_not_given_away_when_the_table_calls_itself_damaged_after_it_has_the_record() -> None:
    """It takes reads and writes still, and nobody knows what it has on the disk."""

    async def main() -> None:
        engine = await engine_on(new_disk(), settings=EngineSettings(overlay=NO_OVERLAYS))

        async def damaged(number: int | None = None) -> None:
            raise Corrupt("a file of the table does not match its checksum")

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(engine._store._table, "flush", damaged)
            with pytest.raises(Corrupt):
                await put(engine, CHUNK, DATA)
        assert isinstance(engine.failure, Corrupt)
        named = (engine.record(CHUNK) or Record()).blocks
        assert named and await engine._files.take(17, engine._store.durable, reserve=False) not in named

    simulate(main())


@pytest.mark.parametrize("work", ["flush", "keep_note"])
def test_a_table_that_calls_itself_damaged_in_a_sync_has_failed_whoever_asked_for_it(work: str) -> None:
    """Otherwise its target serves on, in a version of its chain that it has not stored."""

    async def main() -> None:
        engine = await engine_on(new_disk())
        engine.put_note("name", b"value")

        async def damaged(number: int | None = None) -> None:
            raise Corrupt("a file of the table does not match its checksum")

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(engine._store._table, "flush", damaged)
            with pytest.raises(Corrupt):
                await (engine.flush() if work == "flush" else engine.keep_note("chain", b"one"))
        assert isinstance(engine.failure, Corrupt)

    simulate(main())


@pytest.mark.parametrize("what", [Kind.REPLACE, Kind.WRITE, Kind.REMOVE])
def test_a_block_that_cannot_be_read_gets_no_other_chunk(what: Kind) -> None:
    """One of a version that a client replaced got the next chunk, and that one could not be read either."""

    async def main() -> None:
        disk = new_disk()
        engine = await engine_on(disk, settings=EngineSettings(overlay=NO_OVERLAYS))
        bad = (await put(engine, CHUNK, DATA)).block
        disk.failing_once.add("read")
        with pytest.raises(DiskFailed):
            await read_all(engine, CHUNK)
        if what is Kind.WRITE:
            await put(engine, CHUNK, DATA)
        else:
            await change(engine, CHUNK, what, b"" if what is Kind.REMOVE else DATA)
        await engine.flush()
        others = [await put(engine, ChunkId(8, number), DATA) for number in range(3)]
        assert bad is not None and bad not in [version.block for version in others]

    simulate(main())


def test_nor_does_one_whose_chunk_was_replaced_while_it_was_read() -> None:
    """A disk tries a bad sector for seconds. The block was freed by then, and given to the next chunk."""

    async def main() -> None:
        disk = new_disk()
        disk.cold = 1.0
        engine = await engine_on(disk, settings=EngineSettings(overlay=NO_OVERLAYS))
        bad = (await put(engine, CHUNK, DATA)).block
        disk.hang("read")
        reading = asyncio.create_task(read_all(engine, CHUNK))
        await asyncio.sleep(0.1)
        await put(engine, CHUNK, DATA)
        disk.failing_once.add("read")
        disk.wake()
        with pytest.raises(DiskFailed):
            await reading
        await engine.flush()
        others = [await put(engine, ChunkId(8, number), DATA) for number in range(3)]
        assert bad is not None and bad not in [version.block for version in others]

    simulate(main())


def test_a_block_that_several_readers_cannot_read_counts_until_its_chunk_is_repaired() -> None:
    """The reader that met the error after the repair had the block count for ever: 16 of them, and the disk failed."""

    async def main() -> None:
        disk = new_disk()
        disk.cold = 1.0
        engine = await engine_on(disk, settings=EngineSettings(overlay=NO_OVERLAYS))
        for number in range(MAX_UNREADABLE):
            chunk = ChunkId(8, number)
            version = await put(engine, chunk, DATA)
            disk.failing_once.add("read")
            with pytest.raises(DiskFailed):
                await read_all(engine, chunk)
            disk.hang("read")
            late = [asyncio.create_task(read_all(engine, chunk)) for _ in range(2)]
            await asyncio.sleep(0.1)
            await engine.restore(chunk, version, DATA)
            disk.failing.add("read")
            disk.wake()
            await asyncio.wait(late)
            disk.failing.clear()
            assert all(isinstance(reading.exception(), DiskFailed) for reading in late)
        assert engine.failure is None

    simulate(main())
