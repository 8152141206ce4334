import asyncio
import errno
import mmap
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from threefs.env import sync_policy
from threefs.env.disk import DIRECT_BYTES, MAX_NOW_BYTES, RealDisk, RealFile, is_aligned, run_to_completion
from threefs.errors import EXHAUSTED, DiskFailed, Unavailable

Body = Callable[[RealDisk], Awaitable[None]]


def with_disk(body: Body) -> None:
    async def main() -> None:
        disk = RealDisk(threads=2)
        try:
            await body(disk)
        finally:
            await disk.close()

    asyncio.run(main())


def pages(count: int) -> memoryview:
    return memoryview(mmap.mmap(-1, count * DIRECT_BYTES))


async def read(file: RealFile, offset: int, length: int, direct: bool = False) -> bytes:
    into = memoryview(bytearray(length))
    return bytes(into[: await file.read(offset, into, direct=direct)])


@pytest.mark.parametrize("direct", [False, True])
def test_written_bytes_are_read_by_both_ways(tmp_path: Path, direct: bool) -> None:
    async def body(disk: RealDisk) -> None:
        file = await disk.open(tmp_path / "a")
        content = pages(8)
        content[:] = os.urandom(len(content))
        await file.write(DIRECT_BYTES, [content[: 5 * DIRECT_BYTES], content[5 * DIRECT_BYTES :]], direct=direct)
        await file.sync()
        for back_direct in (False, True):
            back = pages(8)
            assert await file.read(DIRECT_BYTES, back, direct=back_direct) == len(back)
            assert back == content
        assert file.size() == 9 * DIRECT_BYTES
        await file.close()

    with_disk(body)


@pytest.mark.parametrize(("offset", "length"), [(1, 4096), (0, 100), (4096, 5000), (10, 70_000)])
def test_the_direct_way_falls_back_for_what_is_not_aligned(tmp_path: Path, offset: int, length: int) -> None:
    async def body(disk: RealDisk) -> None:
        file = await disk.open(tmp_path / "a")
        data = os.urandom(length)
        await file.write(offset, [data[:7], b"", data[7:]], direct=True)
        assert await read(file, offset, length, direct=True) == data
        assert (tmp_path / "a").read_bytes() == bytes(offset) + data
        await file.close()

    with_disk(body)


def test_reads_end_at_the_end_of_the_file(tmp_path: Path) -> None:
    async def body(disk: RealDisk) -> None:
        file = await disk.open(tmp_path / "a")
        await file.write(0, [b"x" * 5000])
        assert await read(file, 4000, 9000) == b"x" * 1000
        assert await read(file, 9000, 10) == b""
        into = pages(2)
        assert await file.read(0, into, direct=True) == 5000
        await file.close()

    with_disk(body)


def test_bytes_in_memory_are_read_without_waiting(tmp_path: Path) -> None:
    async def body(disk: RealDisk) -> None:
        file = await disk.open(tmp_path / "a")
        await file.write(0, [b"abc" * 5000])
        into = memoryview(bytearray(15_000))
        assert file.read_now(0, into) in (0, 15_000)  # a file system that cannot tell has nothing in memory
        if into[0]:
            assert bytes(into) == b"abc" * 5000
        assert file.read_now(1 << 20, into) == 0
        await file.close()

    with_disk(body)


def test_sync_does_the_writes_of_a_batch(tmp_path: Path) -> None:
    async def body(disk: RealDisk) -> None:
        file = await disk.open(tmp_path / "a")
        await file.sync([(0, [b"one"]), (10, [b"two", b"three"])])
        assert (tmp_path / "a").read_bytes() == b"one" + bytes(7) + b"twothree"
        await file.sync([(0, [bytes([n % 251]) for n in range(3000)])])
        assert await read(file, 2999, 1) == bytes([2999 % 251])
        await file.close()

    with_disk(body)


def any_sync_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else uses the disk of this machine: after a stall of a moment a file is not synced at once any more."""
    monkeypatch.setattr(sync_policy, "QUICK_S", 60.0)
    monkeypatch.setattr(sync_policy, "STALL_S", 60.0)


def test_a_quick_disk_is_written_and_synced_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(disk: RealDisk) -> None:
        file = await disk.open(tmp_path / "a")
        threads: list[int] = []
        fdatasync = os.fdatasync

        def watched(descriptor: int) -> None:
            threads.append(threading.get_ident())
            fdatasync(descriptor)

        monkeypatch.setattr(os, "fdatasync", watched)
        assert not file.sync_now([(0, [b"x"])]) and file.size() == 0 and not threads  # nothing is known of the disk
        any_sync_is_quick(monkeypatch)
        while not file.sync_now([(3, [b"de", b"f"]), (0, [b"abc"])]):
            await file.sync([(0, [b"ABCDEF"])])
        assert await read(file, 0, 6) == b"abcdef"
        assert threads.pop() == threading.get_ident() and threading.get_ident() not in threads and threads
        large = bytes(MAX_NOW_BYTES)
        assert file.sync_now([(0, [large])]) and not file.sync_now([(0, [large]), (len(large), [b"x"])])
        assert file.size() == len(large)
        assert not file.sync_now([])  # what was written before may be much
        monkeypatch.setattr(sync_policy, "QUICK_S", 0.0)
        while file.sync_now([(0, [b"x"])]):
            pass  # it was not quick often enough
        await file.close()

    with_disk(body)


def test_a_sync_that_fails_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(disk: RealDisk) -> None:
        file = await disk.open(tmp_path / "a")
        any_sync_is_quick(monkeypatch)
        while not file.sync_now([(0, [b"x"])]):
            await file.sync([(0, [b"x"])])

        def broken(descriptor: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(os, "fdatasync", broken)
        with pytest.raises(DiskFailed):
            file.sync_now([(0, [b"x"])])
        await file.close()

    with_disk(body)


def test_allocate_reserves_and_release_gives_back(tmp_path: Path) -> None:
    async def body(disk: RealDisk) -> None:
        file = await disk.open(tmp_path / "a")
        await file.allocate(0, 1 << 20)
        assert file.size() == 1 << 20
        assert os.stat(tmp_path / "a").st_blocks * 512 >= 1 << 20
        await file.write(0, [b"x" * (1 << 20)])
        await file.release(0, 1 << 19)
        assert file.size() == 1 << 20
        assert await read(file, 1 << 19, 5) == b"xxxxx"
        assert await read(file, 0, 5) in (bytes(5), b"xxxxx")
        await file.close()

    with_disk(body)


def test_directories(tmp_path: Path) -> None:
    async def body(disk: RealDisk) -> None:
        assert await disk.list_directory(tmp_path / "x") == []
        await disk.make_directory(tmp_path / "x" / "y")
        await disk.make_directory(tmp_path / "x" / "y")
        await (await disk.open(tmp_path / "x" / "b")).close()
        assert await disk.list_directory(tmp_path / "x") == ["b", "y"]
        space = disk.space(tmp_path)
        assert 0 <= space.free_bytes <= space.capacity_bytes
        assert space.disk and space.disk == disk.space(tmp_path / "x").disk, "one disk has one name"
        assert space.disk != disk.space(Path("/proc")).disk

    with_disk(body)


def test_an_open_keeps_the_content(tmp_path: Path) -> None:
    async def body(disk: RealDisk) -> None:
        (tmp_path / "a").write_bytes(b"old")
        file = await disk.open(tmp_path / "a")
        assert await read(file, 0, 10) == b"old"
        await file.close()

    with_disk(body)


def test_errors_name_the_file(tmp_path: Path) -> None:
    async def body(disk: RealDisk) -> None:
        with pytest.raises(DiskFailed, match="missing"):
            await disk.open(tmp_path / "missing" / "a")
        with pytest.raises(DiskFailed, match="missing"):
            disk.space(tmp_path / "missing")

    with_disk(body)


@pytest.mark.parametrize("number", EXHAUSTED)
def test_a_disk_has_not_failed_where_there_are_no_descriptors(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is there a file or directory then whose name was not made durable: the next call would take it for one."""
    begin = os.open
    left = 0  # descriptors

    def scarce(*rest: Any, **more: Any) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(number, os.strerror(number))
        return begin(*rest, **more)

    async def body(disk: RealDisk) -> None:
        nonlocal left
        open_files = len(os.listdir("/proc/self/fd"))
        for given in range(3):
            left = given
            with pytest.raises(Unavailable):
                await disk.open(tmp_path / "a")
            assert (tmp_path / "a").exists() == (given == 2), "only its direct way is missing"
        for given in range(2):
            left = given
            with pytest.raises(Unavailable):
                await disk.make_directory(tmp_path / "x" / "y")
            assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["x"][:given]
        assert not (tmp_path / "x" / "y").exists() and len(os.listdir("/proc/self/fd")) == open_files

    monkeypatch.setattr(os, "open", scarce)
    with_disk(body)


def test_without_memory_for_a_sync_nobody_knows_what_the_disk_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A next sync may succeed without what was written before this one."""

    def broken(descriptor: int) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    async def body(disk: RealDisk) -> None:
        file = await disk.open(tmp_path / "a")
        monkeypatch.setattr(os, "fdatasync", broken)
        with pytest.raises(DiskFailed):
            await file.sync([(0, [b"x"])])
        await file.close()

    with_disk(body)


async def test_memory_is_left_alone_once_a_cancelled_call_has_ended() -> None:
    begun, go_on = threading.Event(), threading.Event()
    done: list[str] = []

    def work() -> None:
        begun.set()
        go_on.wait()
        done.append("written")

    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(run_to_completion(loop.run_in_executor(None, work)))
    await loop.run_in_executor(None, begun.wait)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["written"]


async def test_settled_gives_results_and_errors() -> None:
    async def fails() -> None:
        raise DiskFailed("broken")

    assert await run_to_completion(asyncio.sleep(0, "result")) == "result"
    with pytest.raises(DiskFailed):
        await run_to_completion(fails())


async def test_settled_needs_a_task_only_to_wait() -> None:
    async def at_once() -> int:
        return len(asyncio.all_tasks())

    async def later() -> int:
        await asyncio.sleep(0)
        return len(asyncio.all_tasks())

    assert await run_to_completion(at_once()) == 1
    assert await run_to_completion(later()) == 2


def test_alignment() -> None:
    memory = pages(2)
    assert is_aligned(memory)
    assert is_aligned(memory[DIRECT_BYTES:])
    assert not is_aligned(memory[512:])
    assert not is_aligned(memory[: DIRECT_BYTES + 512])
    assert is_aligned(b"")


def test_a_file_that_was_closed_leaves_the_one_alone_that_has_its_descriptor(tmp_path: Path) -> None:
    async def body(disk: RealDisk) -> None:
        old = await disk.open(tmp_path / "old")
        await old.write(0, [bytes(DIRECT_BYTES)])
        await old.close()
        others = [await disk.open(tmp_path / f"new{number}") for number in range(2)]
        for other in others:
            await other.write(0, [b"x" * DIRECT_BYTES])
        await old.release(0, DIRECT_BYTES)
        with pytest.raises(DiskFailed):
            await old.write(0, [b"late"])
        with pytest.raises(DiskFailed):
            await old.read(0, memoryview(bytearray(4)))
        await old.close()
        for other in others:
            assert await read(other, 0, DIRECT_BYTES) == b"x" * DIRECT_BYTES
            await other.close()

    with_disk(body)
