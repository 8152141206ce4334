import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from threefs_storage.engine.content import Kind, Update
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.engine.records import Entry, Record

from tests.support import chunk_writer
from tests.support.chunk_engine import change, opened, put, read_all, read_range, update
from tests.support.chunk_machine import CHUNK_BYTES, Machine, expected
from tests.support.lossy_disk import LossyDisk, LossyTable
from threefs.checksums import crc32c
from threefs.errors import Corrupt, NoSpace, ThreefsError, Unavailable, VersionGap
from threefs.ids import ChunkId, WriteIdentity

CHUNK = ChunkId(7, 0)

chunks = st.builds(ChunkId, st.just(7), st.integers(0, 3))
lengths = st.one_of(st.sampled_from([0, 1, 4096, 65536, 65537, CHUNK_BYTES // 2]), st.integers(0, CHUNK_BYTES // 2))
changes = st.tuples(chunks, st.sampled_from(list(Kind)), lengths, lengths)
steps = st.one_of(
    st.tuples(st.just("stage"), st.lists(changes, min_size=1, max_size=4, unique_by=lambda change: change[0])),
    st.tuples(st.just("write"), st.lists(changes, min_size=1, max_size=4, unique_by=lambda change: change[0])),
    st.tuples(st.just("commit"), chunks),
    st.tuples(st.just("commit"), chunks),
    st.tuples(st.just("drop"), chunks),
    st.tuples(st.just("power"), st.just(None)),
    st.tuples(
        st.just("crash"),
        st.tuples(st.lists(changes, min_size=1, max_size=4, unique_by=lambda change: change[0]), st.integers(0, 25)),
    ),
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32), plan=st.lists(steps, max_size=25))
def test_no_acknowledged_version_is_lost_whenever_the_power_fails(seed: int, plan: list[tuple[str, Any]]) -> None:
    async def main() -> None:
        machine = Machine(seed)
        await machine.open()
        for name, argument in plan:
            await step(machine, name, argument)
            await machine.check()

    asyncio.run(main())


async def step(machine: Machine, name: str, argument: Any) -> None:
    if name == "commit":
        machine.commit(argument)
    elif name == "drop":
        machine.drop(argument)
    elif name == "power":
        await machine.fail_power()
    else:
        todo, fail_after = argument if name == "crash" else (argument, None)
        await machine.together([machine.stage(*change) for change in todo], fail_after)
        if name == "write":
            for chunk, *_ in todo:
                machine.commit(chunk)


@pytest.mark.parametrize("length", [1, 100, 4096, 65535, 65536, 100_000, 1 << 20, (1 << 20) - 5])
def test_what_was_written_is_read_back_after_reopening(tmp_path: Path, length: int) -> None:
    data = bytes(range(256)) * (length // 256) + bytes(range(length % 256))

    async def main() -> None:
        async with opened(tmp_path) as engine:
            await put(engine, CHUNK, data)
            assert await read_all(engine, CHUNK) == data
        async with opened(tmp_path) as engine:
            assert await read_all(engine, CHUNK) == data

    asyncio.run(main())


@pytest.mark.parametrize("length", [1000, 100_000])
@pytest.mark.parametrize("ending", ["commit", "drop"])
def test_a_block_is_not_reused_before_it_is_durably_given_up(ending: str, length: int) -> None:
    async def main(fail_after: int, seed: int) -> None:
        machine = Machine(seed)
        await machine.open()
        for _ in range(2):
            await machine.stage(CHUNK, Kind.WRITE, 0, length)
            if ending == "commit":
                machine.commit(CHUNK)
            else:
                machine.drop(CHUNK)
        # The block that was given up just now is the lowest free one.
        await machine.together([machine.stage(ChunkId(8, 0), Kind.WRITE, 0, length)], fail_after)

    for fail_after in range(30):
        for seed in range(5):
            asyncio.run(main(fail_after, seed))


def test_an_append_does_not_overwrite_a_dropped_one_that_a_crash_may_bring_back() -> None:
    async def main(fail_after: int, seed: int) -> None:
        machine = Machine(seed)
        await machine.open()
        await machine.stage(CHUNK, Kind.WRITE, 0, 1000)
        machine.commit(CHUNK)
        await machine.stage(CHUNK, Kind.WRITE, 1000, 3000)
        machine.drop(CHUNK)
        await machine.together([machine.stage(CHUNK, Kind.WRITE, 1000, 3000)], fail_after)

    for fail_after in range(30):
        for seed in range(5):
            asyncio.run(main(fail_after, seed))


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
        assert record.entry(identity.client, 4) == Entry(*identity, 1, 3, staged.checksum)

    async def replace(engine: ChunkEngine) -> None:
        record = engine.record(CHUNK)
        assert record is not None
        assert record.entry(identity.client, 4) is not None
        shipped = (Entry(b"z" * 16, 1, 8, 6, 1, 2),)
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


def test_a_damaged_record_costs_one_chunk_until_it_is_replaced(tmp_path: Path) -> None:
    disk = LossyDisk(1)
    table = LossyTable(disk)

    async def main() -> None:
        engine = await ChunkEngine.open(tmp_path, disk, open_table=table.opened)
        await put(engine, CHUNK, b"a")
        await put(engine, ChunkId(8, 0), b"b")
        data = table.get(CHUNK.key())
        assert data is not None
        table.write({CHUNK.key(): data[:-1] + bytes([data[-1] ^ 1])})
        engine = await ChunkEngine.open(tmp_path, disk, open_table=table.opened)
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

    asyncio.run(main())


def test_a_failed_disk_ends_all_changes_but_not_reading(tmp_path: Path) -> None:
    disk = LossyDisk(1)

    async def main() -> None:
        engine = await ChunkEngine.open(tmp_path, disk, open_table=LossyTable(disk).opened)
        await put(engine, CHUNK, b"a")
        disk.lost_power = True
        with pytest.raises(ThreefsError):
            await put(engine, CHUNK, b"b")
        disk.lost_power = False
        with pytest.raises(ThreefsError):
            await put(engine, CHUNK, b"b")
        assert engine.failure is not None
        assert await read_all(engine, CHUNK) == b"a"

    asyncio.run(main())


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
                payload = source.randbytes(length) if kind == Kind.WRITE else b""
                await change(engine, chunk, kind, payload, offset=offset if payload else 0, length=length)
                contents[chunk] = expected(old, kind, offset, length, payload) or b""

        await asyncio.gather(*(one(number) for number in range(16)))

    async def check(engine: ChunkEngine) -> None:
        for chunk, content in contents.items():
            assert await read_all(engine, chunk) == content

    in_engine(tmp_path, write)
    in_engine(tmp_path, check)


def durable_until_killed(directory: Path, changes: int) -> dict[int, int]:
    """The newest version of each task that a writer has named before it was killed."""
    process = subprocess.Popen(
        [sys.executable, chunk_writer.__file__, str(directory)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    durable: dict[int, int] = {}
    with process.stdout:
        for seen, line in enumerate(process.stdout):
            task, version = map(int, line.split())
            durable[task] = version
            if seen == changes:
                process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    return durable


def test_nothing_durable_is_lost_by_kill_9(tmp_path: Path) -> None:
    async def check(durable: dict[int, int]) -> None:
        async with opened(tmp_path) as engine:
            assert not engine.damaged
            for task, version in durable.items():
                record = engine.record(chunk_writer.chunk_of(task)) or Record()
                found = [v for v in (record.committed, record.pending) if v is not None]
                assert max(v.version for v in found) >= version
                for v in found:
                    assert await read_range(engine, v, 0, v.length) == chunk_writer.content(task, v.version)

    for changes in (3, 60, 200):
        durable = durable_until_killed(tmp_path, changes)
        assert durable
        asyncio.run(check(durable))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("a small file system cannot be mounted here (needs root)")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_takes_no_client_writes_but_everything_else(small_disk: Path) -> None:
    data = os.urandom(1 << 20)

    async def fill(engine: ChunkEngine) -> None:
        number = 0
        with pytest.raises(NoSpace):
            while True:
                await put(engine, ChunkId(1, number), data)
                number += 1
        assert number > 40
        assert engine.failure is None
        with pytest.raises(NoSpace):
            await put(engine, ChunkId(1, 0), b"x", 5)
        assert engine.space().chunks == number
        for kept in range(1, number):
            assert await read_all(engine, ChunkId(1, kept)) == data
        await change(engine, ChunkId(1, 0), Kind.REMOVE)
        await put(engine, ChunkId(2, 0), data)

    async def check(engine: ChunkEngine) -> None:
        assert await read_all(engine, ChunkId(2, 0)) == data
        assert await read_all(engine, ChunkId(1, 1)) == data
        assert await read_all(engine, ChunkId(1, 0)) is None

    in_engine(small_disk, fill)
    in_engine(small_disk, check)


def test_a_disk_filled_by_others_loses_nothing(small_disk: Path) -> None:
    data = os.urandom(50_000)
    durable: list[int] = []

    async def fill(engine: ChunkEngine) -> None:
        await put(engine, ChunkId(1, 0), data)
        durable.append(0)
        with contextlib.suppress(OSError), (small_disk / "other").open("wb", buffering=0) as other:
            while True:
                other.write(bytes(1 << 16))
        for number in range(1, 5000):
            try:
                await put(engine, ChunkId(1, number), data)
            except (NoSpace, Unavailable):
                break
            durable.append(number)
        else:
            raise AssertionError("the disk never became full")
        for number in durable:
            assert await read_all(engine, ChunkId(1, number)) == data

    async def check(engine: ChunkEngine) -> None:
        for number in durable:
            record = engine.record(ChunkId(1, number)) or Record()
            version = record.committed or record.pending
            assert version is not None
            assert await read_range(engine, version, 0, version.length) == data
        await put(engine, ChunkId(3, 0), data)

    with contextlib.suppress(ThreefsError):  # what was not acknowledged cannot be made durable
        in_engine(small_disk, fill)
    assert durable
    (small_disk / "other").unlink()
    in_engine(small_disk, check)
