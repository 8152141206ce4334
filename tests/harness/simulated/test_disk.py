"""The faults of simulated disks: killed processes, power cuts, failing operations, bit rot. What a disk does when
nothing is wrong is in tests/contract/test_disk.py."""

import asyncio
import mmap
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from threefs_storage.engine.engine_settings import EngineSettings

from tests.harness.chunk_engine import NO_OVERLAYS, put, read_all
from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.disk import SimDisk, SimFile
from tests.harness.simulated.loop import Process, SimLoop
from tests.harness.simulated.record_table import open_table
from tests.harness.simulated_disk import engine_on
from threefs.env.disk import LEAVING
from threefs.errors import Corrupt, CorruptChunk, DiskFailed, NoSpace
from threefs.ids import ChunkId

FILE = Path("/file")
LENGTH = 4096
OLD, NEW = b"o" * LENGTH, b"n" * LENGTH

Body = Callable[[SimDisk], Coroutine[Any, Any, None]]


def with_disk(body: Body, seed: int = 1) -> None:
    loop = SimLoop()
    loop.run(body(SimDisk(loop, SeededRandom(seed))))
    assert not loop.failures
    loop.discard()


async def with_old(disk: SimDisk) -> SimFile:
    """A file that holds OLD, durably."""
    file = await disk.open(FILE)
    await file.sync([(0, [OLD])])
    return file


def killed_during(seed: int, work: Callable[[SimFile], Coroutine[Any, Any, None]], *, power: bool = False) -> bytes:
    """What the file holds when a process has been killed while it did `work`."""
    found: list[bytes] = []

    async def body(disk: SimDisk) -> None:
        file = await with_old(disk)
        disk.delay_s = (1.0, 1.0)
        process = Process(disk.loop, "p", "host")
        task = process.start(work(file))
        await asyncio.sleep(0.5)
        process.kill()
        if power:
            disk.cut_power()
        at_once = file.content.bytes_at(0, LENGTH)
        await asyncio.sleep(10)
        assert file.content.bytes_at(0, LENGTH) == at_once, "nothing of a dead process happens later"
        assert not task.done()
        found.append(at_once)

    with_disk(body, seed)
    return found[0]


def test_a_write_whose_process_is_killed_is_done_in_part_or_not_at_all() -> None:
    found = {killed_during(seed, lambda file: file.write(0, [NEW])) for seed in range(60)}
    assert {OLD, NEW} <= found
    lengths = {len(state.rstrip(b"o")) for state in found}
    assert all(state == NEW[:length] + OLD[length:] for state in found for length in [len(state.rstrip(b"o"))])
    assert len(lengths) > 10, "any part of it"


def test_writes_of_a_killed_sync_are_done_up_to_some_place() -> None:
    pieces = [(0, [NEW[:1000]]), (1000, [NEW[1000:]])]
    found = {killed_during(seed, lambda file: file.sync(pieces)) for seed in range(60)}
    assert {OLD, NEW} <= found
    assert all(state.lstrip(b"n").lstrip(b"o") == b"" for state in found)
    assert any(1000 < len(state.rstrip(b"o")) < LENGTH for state in found)


def test_a_power_cut_tears_what_was_under_way_sector_by_sector() -> None:
    found = {killed_during(seed, lambda file: file.write(0, [NEW]), power=True) for seed in range(60)}
    assert any(b"no" in state and b"on" in state for state in found), "not only from the front"


def test_power_takes_nothing_that_a_sync_has_acknowledged() -> None:
    async def body(disk: SimDisk) -> None:
        file = await with_old(disk)
        await file.write(0, [NEW[:512]])
        await file.sync()
        await file.write(1024, [NEW[:512]])
        disk.cut_power()
        data = (await disk.open(FILE)).content.bytes_at(0, LENGTH)
        assert data[:512] == NEW[:512]
        assert data[1024:1536] in (OLD[:512], NEW[:512])
        assert data[512:1024] + data[1536:] == OLD[: LENGTH - 1024]

    for seed in range(20):
        with_disk(body, seed)


def test_files_are_independent_in_a_power_cut() -> None:
    found = set()

    async def body(disk: SimDisk) -> None:
        one, other = await disk.open(Path("/1")), await disk.open(Path("/2"))
        for file in (one, other):
            await file.sync([(0, [b"o"])])
        await other.write(0, [b"n"])
        await one.write(0, [b"n"])
        disk.cut_power()
        found.add((one.content.bytes_at(0, 1), other.content.bytes_at(0, 1)))

    for seed in range(40):
        with_disk(body, seed)
    assert len(found) == 4


def test_a_write_that_fails_may_be_done_in_part() -> None:
    found = set()

    async def body(disk: SimDisk) -> None:
        file = await with_old(disk)
        disk.failing_once.add("write")
        with pytest.raises(DiskFailed):
            await file.write(0, [NEW])
        found.add(len(file.content.bytes_at(0, LENGTH).rstrip(b"o")))
        await file.write(0, [NEW])

    for seed in range(20):
        with_disk(body, seed)
    assert len(found) > 10


@pytest.mark.parametrize("kind", ["read", "write", "sync", "allocate"])
def test_a_failing_kind_fails_until_it_is_repaired_and_others_do_not(kind: str) -> None:
    async def body(disk: SimDisk) -> None:
        file = await with_old(disk)
        disk.failing.add(kind)
        calls: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
            "read": lambda: file.read(0, memoryview(bytearray(10))),
            "write": lambda: file.write(0, [OLD]),
            "sync": lambda: file.sync(),
            "allocate": lambda: file.allocate(0, 1 << 20),
        }
        for name, call in calls.items():
            for _ in range(2):
                if name == kind:
                    with pytest.raises(DiskFailed, match=kind):
                        await call()
                else:
                    await call()
        if kind == "read":
            assert file.read_now(0, memoryview(bytearray(10))) == 0
        disk.failing.clear()
        await calls[kind]()

    with_disk(body)


def test_after_a_failed_sync_the_next_one_brings_nothing_back() -> None:
    lost = 0

    async def body(disk: SimDisk) -> None:
        nonlocal lost
        file = await with_old(disk)
        await file.write(0, [NEW])
        disk.failing_once.add("sync")
        with pytest.raises(DiskFailed):
            await file.sync()
        await file.sync()
        disk.cut_power()
        lost += file.content.bytes_at(0, LENGTH) != NEW

    for seed in range(20):
        with_disk(body, seed)
    assert lost > 15


def test_operations_take_the_time_that_is_drawn() -> None:
    async def body(disk: SimDisk) -> None:
        file = await with_old(disk)
        begin = disk.loop.time()
        await file.write(0, [NEW])
        assert disk.delay_s[0] <= disk.loop.time() - begin <= disk.delay_s[1]
        disk.dragging = (2.0, 3.0)
        begin = disk.loop.time()
        await file.read(0, memoryview(bytearray(10)))
        assert 2.0 <= disk.loop.time() - begin <= 3.0

    with_disk(body)


def test_memory_given_to_a_write_is_looked_at_until_it_returns() -> None:
    async def body(disk: SimDisk) -> None:
        file = await with_old(disk)
        data = bytearray(NEW)
        task = asyncio.ensure_future(file.write(0, [data]))
        await asyncio.sleep(0)
        data[:] = b"x" * LENGTH  # a mistake of the caller, and it shows
        await task
        assert file.content.bytes_at(0, LENGTH) == data

    with_disk(body)


def test_a_share_of_reads_finds_nothing_in_memory() -> None:
    async def body(disk: SimDisk) -> None:
        file = await with_old(disk)
        into = memoryview(bytearray(LENGTH))
        found = [file.read_now(0, into) for _ in range(2000)]
        assert set(found) == {0, LENGTH}
        assert 100 < found.count(0) < 300

    with_disk(body)


def test_rot_of_a_small_change_is_in_its_blob() -> None:
    async def body(disk: SimDisk) -> None:
        engine = await engine_on(disk)
        await put(engine, ChunkId(1, 0), bytes(1000))
        where = disk.rot_content(disk.random)
        assert where is not None and "BlobKey" in where
        with pytest.raises(CorruptChunk):
            await read_all(engine, ChunkId(1, 0))

    for seed in range(10):
        with_disk(body, seed)


def test_rot_of_content_is_in_bytes_that_are_in_use() -> None:
    async def body(disk: SimDisk) -> None:
        engine = await engine_on(disk, settings=EngineSettings(overlay=NO_OVERLAYS))
        assert disk.rot(disk.random) is None, "there is nothing yet"
        chunks = [ChunkId(1, number) for number in range(3)]
        for chunk in chunks:
            await put(engine, chunk, bytes(1000))
        where = disk.rot_content(disk.random)
        assert where is not None and "64KiB.blocks" in where
        damaged = 0
        for chunk in chunks:
            try:
                assert await read_all(engine, chunk) == bytes(1000)
            except CorruptChunk:
                damaged += 1
        assert damaged == disk.rotten == 1
        disk.cut_power()
        assert any(file.bytes_at(0, 1 << 18).count(0) < 1 << 18 for file in disk.files.values()), "it is durable"

    for seed in range(10):
        with_disk(body, seed)


def test_rot_of_a_record_is_found_when_it_is_read() -> None:
    async def body(disk: SimDisk) -> None:
        engine = await engine_on(disk)
        await put(engine, ChunkId(1, 0), b"x")
        await put(engine, ChunkId(1, 1), b"x")
        await engine.close()
        where = disk.rot_record(disk.random)
        assert where is not None and "record" in where
        again = await engine_on(disk)
        (chunk,) = again.damaged
        assert str(chunk) in where
        with pytest.raises(Corrupt):
            again.record(chunk)

    for seed in range(10):
        with_disk(body, seed)


def test_a_wiped_disk_is_empty() -> None:
    async def body(disk: SimDisk) -> None:
        engine = await engine_on(disk)
        await put(engine, ChunkId(1, 0), b"x")
        store_id = engine.store_id
        disk.wipe()
        assert disk.free_bytes() == disk.capacity_bytes
        again = await engine_on(disk)
        assert again.record(ChunkId(1, 0)) is None and again.store_id != store_id

    with_disk(body)


def test_tables_take_room_too() -> None:
    async def body(disk: SimDisk) -> None:
        disk.capacity_bytes = 1 << 20
        table = await open_table(disk, Path("/records"))
        table.write({b"1": bytes(600_000)})
        file = await disk.open(FILE)
        with pytest.raises(NoSpace):
            await file.allocate(0, 1 << 19)
        table.write({b"1": None})
        await file.allocate(0, 1 << 19)

    with_disk(body)


@pytest.mark.parametrize(("offset", "begin", "length"), [(512, 0, 4096), (0, 512, 4096), (0, 0, 4000)])
def test_direct_transfers_that_a_kernel_refuses_are_found(offset: int, begin: int, length: int) -> None:
    async def body(disk: SimDisk) -> None:
        memory = memoryview(mmap.mmap(-1, 8192))
        file = await disk.open(FILE)
        await file.write(4096, [memory[:4096], memory[4096:]], direct=True)
        assert await file.read(0, memory, direct=True) == 8192
        assert disk.direct_transfers == 2
        with pytest.raises(DiskFailed, match="direct transfer"):
            await file.write(offset, [memory[begin : begin + length]], direct=True)
        with pytest.raises(DiskFailed, match="direct transfer"):
            await file.read(offset, memory[begin : begin + length], direct=True)
        assert len(disk.loop.failures) == 2, "whatever the caller does with the error"
        disk.loop.failures.clear()

    with_disk(body)


def test_a_quota_leaves_less_than_the_disk_says_that_it_has() -> None:
    async def body(disk: SimDisk) -> None:
        file = await disk.open(FILE)
        disk.quota_bytes = 1 << 20
        await file.allocate(0, 1 << 20)
        said = disk.space(FILE).free_bytes
        with pytest.raises(NoSpace):
            await file.allocate(1 << 20, 1)
        table = await open_table(disk, Path("/records"))
        with pytest.raises(NoSpace):
            table.write({b"key": b"value"})
        disk.quota_bytes = None
        await file.allocate(1 << 20, 1)
        assert said > 1 << 20

    with_disk(body)


def test_a_disk_may_not_say_what_it_has() -> None:
    async def body(disk: SimDisk) -> None:
        await disk.open(FILE)
        disk.failing.add("space")
        with pytest.raises(DiskFailed, match="space"):
            disk.space(FILE)

    with_disk(body)


def test_a_directory_whose_removal_is_cut_short_is_whole_or_has_another_name() -> None:
    whole, part = Path("/target-1"), Path(f"/target-1{LEAVING}")
    found = set()

    async def body(disk: SimDisk) -> None:
        await disk.make_directory(whole)
        await disk.open(whole / "file")
        disk.delay_s = (1.0, 1.0)
        process = Process(disk.loop, "p", "host")
        process.start(disk.remove_directory(whole))
        await asyncio.sleep(0.5)
        process.kill()
        assert disk.half_removed() == [file.parent for file in disk.files if file.parent != whole]
        found.add(tuple(file.parent for file in disk.files))
        await disk.remove_directory(whole)
        assert not disk.files and not disk.half_removed()

    for seed in range(20):
        with_disk(body, seed)
    assert found == {(whole,), (part,), ()}
