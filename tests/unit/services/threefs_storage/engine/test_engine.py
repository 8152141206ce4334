import asyncio
import contextlib
import dataclasses
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from threefs_storage.engine.ballast import Ballast
from threefs_storage.engine.block_files import BlockFiles
from threefs_storage.engine.chunk_record import Record
from threefs_storage.engine.content_plan import Kind, Update, replacement
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.engine.engine_settings import EngineSettings
from threefs_storage.engine.exactly_once import OnceEntry
from threefs_storage.engine.record_store import RecordStore

from tests.harness.chunk_engine import NO_OVERLAYS, change, opened, put, read_all, update
from tests.harness.chunk_machine import expected
from tests.harness.simulated_disk import engine_on, new_disk, simulate
from threefs.checksums import crc32c
from threefs.env.disk import RealDisk
from threefs.errors import Corrupt, DiskFailed, NoSpace, ThreefsError, Unavailable, VersionGap
from threefs.ids import ChunkId, WriteIdentity
from threefs.kv.table import Table
from threefs.layout import DEFAULT_CHUNK_BYTES

CHUNK = ChunkId(7, 0)


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 100, 4096, 65535, 65536, 100_000, 1 << 20, (1 << 20) - 5])
async def test_written_bytes_are_read_back_after_reopening(tmp_path: Path, length: int) -> None:
    data = bytes(range(256)) * (length // 256) + bytes(range(length % 256))
    async with opened(tmp_path) as engine:
        await put(engine, CHUNK, data)
        assert await read_all(engine, CHUNK) == data
    async with opened(tmp_path) as engine:
        assert await read_all(engine, CHUNK) == data


def in_engine(directory: Path, body: Callable[[ChunkEngine], Awaitable[None]]) -> None:
    async def main() -> None:
        async with opened(directory) as engine:
            await body(engine)

    asyncio.run(main())


def test_a_staged_version_is_pending_until_it_is_committed(tmp_path: Path) -> None:
    async def body(engine: ChunkEngine) -> None:
        first = await put(engine, CHUNK, b"old")
        wanted = update(engine, CHUNK, Kind.WRITE, b"new")
        staged = await engine.stage(CHUNK, wanted, payload=b"new")
        assert engine.record(CHUNK) == Record(first, staged)
        assert await read_all(engine, CHUNK) == b"old"
        committed = engine.commit(CHUNK, 2, 9)
        assert (committed.version, committed.chain_version, committed.checksum) == (2, 9, staged.checksum)
        assert engine.commit(CHUNK, 2, 9) == committed, "a repeat changes nothing"
        assert await read_all(engine, CHUNK) == b"new"

    in_engine(tmp_path, body)


def test_versions_follow_one_another(tmp_path: Path) -> None:
    async def body(engine: ChunkEngine) -> None:
        await put(engine, CHUNK, b"one")
        for version in (0, 1, 3):
            with pytest.raises(VersionGap):
                await engine.stage(CHUNK, update(engine, CHUNK, Kind.WRITE, b"x", version=version), payload=b"x")
        await engine.stage(CHUNK, update(engine, CHUNK, Kind.WRITE, b"x"), payload=b"x")
        for version in (2, 3):
            with pytest.raises(VersionGap):
                await engine.stage(CHUNK, update(engine, CHUNK, Kind.WRITE, b"x", version=version), payload=b"x")
        for version in (0, 3):
            with pytest.raises(VersionGap):
                engine.commit(CHUNK, version, 1)
        engine.drop_pending(CHUNK)
        engine.drop_pending(CHUNK)
        with pytest.raises(VersionGap):
            engine.commit(CHUNK, 2, 1)
        assert await read_all(engine, CHUNK) == b"one"

    in_engine(tmp_path, body)


def test_chunks_with_a_pending_version_are_known(tmp_path: Path) -> None:
    async def stage(engine: ChunkEngine) -> None:
        for number in (3, 1, 2):
            chunk = ChunkId(1, number)
            await engine.stage(chunk, update(engine, chunk, Kind.WRITE, b"x"), payload=b"x")
        engine.commit(ChunkId(1, 2), 1, 1)
        assert engine.pending() == [(1, 1), (1, 3)]

    async def finish(engine: ChunkEngine) -> None:
        assert engine.pending() == [(1, 1), (1, 3)]
        engine.commit(ChunkId(1, 1), 1, 1)
        engine.drop_pending(ChunkId(1, 3))
        assert engine.pending() == []

    in_engine(tmp_path, stage)
    in_engine(tmp_path, finish)


def test_a_removed_chunk_leaves_a_tombstone_and_its_numbers_go_on(tmp_path: Path) -> None:
    async def body(engine: ChunkEngine) -> None:
        await put(engine, CHUNK, b"one")
        assert engine.space().chunks == 1
        assert (await change(engine, CHUNK, Kind.REMOVE)).removed
        assert await read_all(engine, CHUNK) is None
        assert engine.space().chunks == 0
        assert [chunk for chunk, _ in engine.inventory(None, 10)] == [CHUNK]
        assert engine.chunks(7, 0, 10) == []
        assert engine.last_chunk(7) is None
        assert (await put(engine, CHUNK, b"z", 3)).version == 3
        assert await read_all(engine, CHUNK) == b"\0\0\0z"

    in_engine(tmp_path, body)


def test_a_dropped_first_version_leaves_nothing(tmp_path: Path) -> None:
    async def body(engine: ChunkEngine) -> None:
        await engine.stage(CHUNK, update(engine, CHUNK, Kind.WRITE, b"x"), payload=b"x")
        engine.drop_pending(CHUNK)
        assert engine.record(CHUNK) is None
        assert engine.inventory(None, 10) == []

    in_engine(tmp_path, body)


def test_entries_are_kept_with_the_record_and_replaced_by_shipped_ones(tmp_path: Path) -> None:
    identity = WriteIdentity(bytes(range(16)), 4, 1)

    async def write(engine: ChunkEngine) -> None:
        wanted = update(engine, CHUNK, Kind.WRITE, b"abc", identity=identity)
        staged = await engine.stage(CHUNK, wanted, payload=b"abc")
        record = engine.record(CHUNK)
        assert record is not None
        assert record.entry(identity.client, 4) is None, "the entry of a pending version is no result yet"
        engine.commit(CHUNK, 1, 1)
        record = engine.record(CHUNK)
        assert record is not None
        assert record.entry(identity.client, 4) == OnceEntry(*identity, 1, 3, staged.checksum)

    async def replace(engine: ChunkEngine) -> None:
        record = engine.record(CHUNK)
        assert record is not None
        assert record.entry(identity.client, 4) is not None
        shipped = (OnceEntry(b"z" * 16, 1, 8, 6, 1, 2),)
        wanted = update(engine, CHUNK, Kind.REPLACE, b"whole", version=6, chain_version=2, entries=shipped)
        await engine.stage(CHUNK, wanted, payload=b"whole")
        engine.commit(CHUNK, 6, 2)
        record = engine.record(CHUNK)
        assert record is not None
        assert record.entries == shipped
        assert await read_all(engine, CHUNK) == b"whole"

    in_engine(tmp_path, write)
    in_engine(tmp_path, replace)


def test_a_replace_takes_the_place_of_all_but_what_is_newer_in_its_chain_version(tmp_path: Path) -> None:
    async def body(engine: ChunkEngine) -> None:
        async def replace(version: int, chain_version: int, data: bytes, removed: bool = False) -> None:
            wanted = update(
                engine, CHUNK, Kind.REPLACE, data, version=version, chain_version=chain_version, removed=removed
            )
            await engine.stage(CHUNK, wanted, payload=data)
            engine.commit(CHUNK, version, chain_version)

        await replace(5, 3, b"five")
        with pytest.raises(VersionGap):
            await replace(4, 3, b"four")
        await replace(5, 3, b"five again")
        await replace(4, 4, b"four")
        assert await read_all(engine, CHUNK) == b"four"
        await engine.stage(CHUNK, update(engine, CHUNK, Kind.WRITE, b"x"), payload=b"x")
        await replace(9, 4, b"nine")
        assert engine.record(CHUNK) == Record(engine.commit(CHUNK, 9, 4))
        await replace(10, 4, b"", removed=True)
        assert await read_all(engine, CHUNK) is None

    in_engine(tmp_path, body)


@pytest.mark.parametrize("before", [b"", b"one", b"one" * 50_000])
def test_a_replace_by_word_that_the_bytes_are_lost_keeps_those_that_are_pending(tmp_path: Path, before: bytes) -> None:
    """Of that very version only; the block of any other one is free afterwards."""

    async def body(engine: ChunkEngine) -> None:
        if before:
            await put(engine, CHUNK, before)
        wanted = update(engine, CHUNK, Kind.WRITE, b"new", offset=len(before))
        staged = await engine.stage(CHUNK, wanted, payload=b"new")
        lost = dataclasses.replace(replacement(staged, ()), chain_version=2, lost=True)
        kept = await engine.stage(CHUNK, lost)
        assert (kept.block, kept.lost, kept.chain_version) == (staged.block, False, 2)
        engine.commit(CHUNK, staged.version, 2)
        assert await read_all(engine, CHUNK) == before + b"new"
        staged = await engine.stage(CHUNK, update(engine, CHUNK, Kind.WRITE, bytes(70_000)), payload=bytes(70_000))
        other = dataclasses.replace(replacement(staged, ()), chain_version=3, version=staged.version + 1, lost=True)
        assert (await engine.stage(CHUNK, other)).lost
        engine.commit(CHUNK, other.version, 3)
        assert engine._files.used_bytes() == engine._files._freed_bytes()
        assert engine._files.used_bytes() and engine.space().used_bytes == 0, "what is freed counts as free"

    in_engine(tmp_path, body)


def test_listing(tmp_path: Path) -> None:
    async def body(engine: ChunkEngine) -> None:
        for inode, number in ((1, 0), (2, 0), (2, 3), (2, 70_000), (3, 1), ((1 << 64) - 1, 5)):
            await put(engine, ChunkId(inode, number), b"x" * number if number < 100 else b"y")
        await engine.stage(ChunkId(2, 80_000), update(engine, ChunkId(2, 80_000), Kind.WRITE, b"x"), payload=b"x")
        assert [chunk.number for chunk, _ in engine.chunks(2, 0, 10)] == [0, 3, 70_000]
        assert [chunk.number for chunk, _ in engine.chunks(2, 1, 1)] == [3]
        last = engine.last_chunk(2)
        assert last is not None
        assert last[0] == ChunkId(2, 70_000)
        assert [chunk.number for chunk, _ in engine.chunks((1 << 64) - 1, 0, 10)] == [5]
        first = engine.inventory(None, 3)
        rest = engine.inventory(first[-1][0], 100)
        assert [chunk for chunk, _ in first + rest] == [
            (1, 0), (2, 0), (2, 3), (2, 70_000), (2, 80_000), (3, 1), ((1 << 64) - 1, 5)
        ]  # fmt: skip
        assert engine.space().chunks == 6

    in_engine(tmp_path, body)


def test_space_is_used_and_given_back(tmp_path: Path) -> None:
    async def body(engine: ChunkEngine) -> None:
        for number in range(8):
            await put(engine, ChunkId(1, number), bytes(1 << 20))
        assert engine.space().used_bytes == 8 << 20
        for number in range(8):
            await change(engine, ChunkId(1, number), Kind.REMOVE)
        await put(engine, ChunkId(2, 0), bytes(1 << 20))
        await put(engine, ChunkId(2, 1), bytes(1 << 20))
        space = engine.space()
        assert space.used_bytes <= 3 << 20
        assert space.chunks == 2
        assert space.free_bytes <= space.capacity_bytes

    in_engine(tmp_path, body)
    in_engine(tmp_path, check_two_blocks)


async def check_two_blocks(engine: ChunkEngine) -> None:
    assert engine.space().used_bytes == 2 << 20
    assert engine.space().chunks == 2


def test_a_damaged_record_costs_one_chunk_until_it_is_replaced() -> None:
    async def main() -> None:
        disk = new_disk()
        engine = await engine_on(disk)
        await put(engine, CHUNK, b"a")
        await put(engine, ChunkId(8, 0), b"b")
        (rows,) = disk.tables.values()
        data = rows.values[CHUNK.key()]
        rows.values[CHUNK.key()] = data[:-1] + bytes([data[-1] ^ 1])
        engine = await engine_on(disk)
        assert engine.damaged == [CHUNK]
        with pytest.raises(Corrupt):
            engine.record(CHUNK)
        with pytest.raises(Corrupt):
            await engine.stage(CHUNK, Update(Kind.WRITE, 1, 1), payload=b"")
        assert await read_all(engine, ChunkId(8, 0)) == b"b"
        wanted = Update(Kind.REPLACE, 4, 1, 0, 3, crc32c(b"new"), entries=())
        await engine.stage(CHUNK, wanted, payload=b"new")
        engine.commit(CHUNK, 4, 1)
        assert await read_all(engine, CHUNK) == b"new"

    simulate(main())


def test_a_failed_disk_ends_all_changes_but_not_reading() -> None:
    async def main() -> None:
        disk = new_disk()
        engine = await engine_on(disk, settings=EngineSettings(overlay=NO_OVERLAYS))
        await put(engine, CHUNK, b"a")
        disk.failing |= {"write", "sync"}
        with pytest.raises(ThreefsError):
            await put(engine, CHUNK, b"b")
        disk.failing.clear()
        with pytest.raises(ThreefsError):
            await put(engine, CHUNK, b"b")
        assert engine.failure is not None
        assert await read_all(engine, CHUNK) == b"a"

    simulate(main())


async def test_a_closed_engine_touches_no_file(tmp_path: Path) -> None:
    """Its descriptors may be those of other files by then. With a full disk it stays until its store can be opened."""
    others = tmp_path / "others"
    others.write_bytes(b"o" * (8 << 20))

    disk = RealDisk(threads=2)
    settings = EngineSettings(overlay=NO_OVERLAYS, ballast_bytes=1 << 60)  # there is no room for it
    engine = await ChunkEngine.open(tmp_path / "engine", disk, settings)
    for content in (b"a" * 70_000, b"b" * 70_000):  # the block of the first one is free then
        wanted = dataclasses.replace(update(engine, CHUNK, Kind.WRITE, content), admitted=True)
        await engine.stage(CHUNK, wanted, payload=content)
        engine.commit(CHUNK, wanted.version, 1)
    version = (engine.record(CHUNK) or Record()).committed
    await engine.close()
    taken = [os.open(others, os.O_RDWR) for _ in range(64)]
    try:
        await engine.recover()
        with pytest.raises(Unavailable):
            await engine.stage(CHUNK, update(engine, CHUNK, Kind.WRITE, b"c" * 70_000), payload=b"c" * 70_000)
        with pytest.raises(Unavailable):
            await engine.fold(CHUNK)
        with pytest.raises(ThreefsError):
            engine.stored_record(CHUNK)
        assert version is not None and engine.failure is None, "it can be opened again"
        await engine.close()
    finally:
        for descriptor in taken:
            os.close(descriptor)
    await disk.close()
    assert others.read_bytes() == b"o" * (8 << 20)


async def test_an_engine_closes_after_the_upkeep_that_waits_for_the_disk(tmp_path: Path) -> None:
    """A hole that is made afterwards would be one in another file."""
    async with opened(tmp_path) as engine:
        began, may_end, closed = asyncio.Event(), asyncio.Event(), False
        release = engine._files.release_unneeded_blocks

        async def held(durable: int) -> None:
            began.set()
            await may_end.wait()
            assert not closed
            await release(durable)

        engine._files.release_unneeded_blocks = held  # type: ignore[method-assign]
        upkeep = asyncio.create_task(engine.release_unneeded())
        await began.wait()
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0.05)
        assert not closing.done()
        may_end.set()
        await upkeep
        await closing
        closed = True
        await engine.release_unneeded()
        await engine.recover()


async def test_no_change_begins_in_an_engine_that_waits_to_close(tmp_path: Path) -> None:
    """A fold may be about to begin. It would go on in files that are closed, or in others with their descriptors."""
    async with opened(tmp_path) as engine:
        await put(engine, CHUNK, b"a" * 1000)
        began, may_end = asyncio.Event(), asyncio.Event()

        async def held(durable: int) -> None:
            began.set()
            await may_end.wait()

        engine._files.release_unneeded_blocks = held  # type: ignore[method-assign]
        upkeep = asyncio.create_task(engine.release_unneeded())
        await began.wait()
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0)
        with pytest.raises(Unavailable):
            await engine.fold(CHUNK)
        may_end.set()
        await upkeep
        await closing


@pytest.mark.parametrize("failing", ["table", "blocks", "ballast"])
async def test_an_engine_that_cannot_be_opened_leaves_nothing_open(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full target tries to return twice a second: its table would be locked, and the process without descriptors."""
    async with opened(tmp_path) as engine:
        await put(engine, CHUNK, b"x" * 70_000)

    async def refuse(*rest: object) -> Any:
        raise NoSpace("full")

    disk = RealDisk(threads=2)
    await disk.open(tmp_path / "starts the threads")
    before = open_files(tmp_path)
    with monkeypatch.context() as patched:
        if failing == "blocks":
            patched.setattr(BlockFiles, "prepare", refuse)
        elif failing == "ballast":
            patched.setattr(Ballast, "allocate", refuse)
        open_table = refuse if failing == "table" else Table.open
        for _ in range(2):
            with pytest.raises(NoSpace):
                await ChunkEngine.open(tmp_path, disk, open_table=open_table)
            assert open_files(tmp_path) == before
    engine = await ChunkEngine.open(tmp_path, disk)
    assert await read_all(engine, CHUNK) == b"x" * 70_000
    await engine.close()
    await disk.close()


async def test_others_have_their_turns_while_a_large_store_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target opens its store again in a process that serves others. Without heartbeats they would lose their
    leases."""
    async with opened(tmp_path) as engine:
        await put(engine, CHUNK, b"x")
        record = engine.record(CHUNK)
        engine._store.write({ChunkId(9, number): record for number in range(2000)})
    turns, seen = 0, set()
    update_indexes = RecordStore.update_indexes

    def noted(store: RecordStore, chunk: ChunkId, known: Record | None) -> None:
        seen.add(turns)
        update_indexes(store, chunk, known)

    async def serve_others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(RecordStore, "update_indexes", noted)
    others = asyncio.create_task(serve_others())
    async with opened(tmp_path) as engine:
        assert len(seen) == 4 and engine.space().chunks == 2001
    others.cancel()


def open_files(below: Path) -> list[str]:
    """Those of this process."""
    paths = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the directory itself
            paths.append(os.readlink(link))
    return sorted(path for path in paths if path.startswith(str(below)))


async def test_a_disk_that_does_not_say_what_it_has_has_failed(tmp_path: Path) -> None:
    async with opened(tmp_path / "disk" / "target-101") as engine:
        failures: list[ThreefsError] = []
        engine.on_failure = failures.append
        (tmp_path / "disk").rename(tmp_path / "gone")
        assert engine.space().capacity_bytes == 0 and engine.room_bytes == 0
        assert isinstance(engine.failure, DiskFailed) and failures == [engine.failure]
        (tmp_path / "gone").rename(tmp_path / "disk")


def test_a_cancelled_stage_ends_with_its_work(tmp_path: Path) -> None:
    async def body(engine: ChunkEngine) -> None:
        for number in range(10):
            chunk = ChunkId(9, number)
            wanted = update(engine, chunk, Kind.WRITE, b"x" * 200_000)
            task = asyncio.ensure_future(engine.stage(chunk, wanted, payload=b"x" * 200_000))
            for _ in range(number):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            engine.drop_pending(chunk)  # would fail if the work still went on
            await put(engine, chunk, b"y" * 200_000)
            assert await read_all(engine, chunk) == b"y" * 200_000

    in_engine(tmp_path, body)


def test_many_chunks_at_the_same_time_on_a_real_disk(tmp_path: Path) -> None:
    source = random.Random(5)
    contents: dict[ChunkId, bytes] = {}

    async def write(engine: ChunkEngine) -> None:
        async def one(number: int) -> None:
            chunk = ChunkId(4, number)
            for _ in range(6):
                old = contents.get(chunk, b"")
                kind = source.choice([Kind.WRITE, Kind.WRITE, Kind.TRUNCATE, Kind.EXTEND])
                offset, length = source.choice([0, len(old), source.randrange(300_000)]), source.randrange(300_000)
                offset = min(offset, DEFAULT_CHUNK_BYTES - length)  # whatever the order of the tasks
                payload = source.randbytes(length) if kind == Kind.WRITE else b""
                await change(engine, chunk, kind, payload, offset=offset if payload else 0, length=length)
                contents[chunk] = expected(old, kind, offset, length, payload) or b""

        await asyncio.gather(*(one(number) for number in range(16)))

    async def check(engine: ChunkEngine) -> None:
        for chunk, content in contents.items():
            assert await read_all(engine, chunk) == content

    in_engine(tmp_path, write)
    in_engine(tmp_path, check)
