"""What every disk promises: the real one, and the one of simulations."""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.disk import SimDisk
from tests.harness.simulated.loop import SimLoop
from threefs.env.disk import Disk, File, RealDisk
from threefs.errors import DiskFailed, NoSpace

KIB = 1 << 10
MIB = 1 << 20
_SMALL_BYTES = 8 * MIB

Body = Callable[[Disk, Path], Awaitable[None]]
Check = Callable[[Body], None]


def on_real_disk(directory: Path, body: Body) -> None:
    async def main() -> None:
        disk = RealDisk(threads=2)
        try:
            await body(disk, directory)
        finally:
            await disk.close()

    asyncio.run(main())


def on_sim_disk(body: Body, capacity_bytes: int) -> None:
    async def main(disk: SimDisk) -> None:
        await disk.make_directory(Path("/data"))
        await body(disk, Path("/data"))

    for seed in range(5):
        loop = SimLoop()
        disk = SimDisk(loop, SeededRandom(seed), capacity_bytes=capacity_bytes)
        loop.run(main(disk))
        assert not loop.failures


@pytest.fixture(params=["real", "sim"])
def check(request: pytest.FixtureRequest, tmp_path: Path) -> Check:
    """Runs a body with a fresh disk of each kind, and an empty directory on it."""
    if request.param == "real":
        return lambda body: on_real_disk(tmp_path, body)
    return lambda body: on_sim_disk(body, 1 << 30)


@pytest.fixture(params=["real", "sim"])
def check_small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Check]:
    """The same on a disk that is soon full."""
    if request.param == "sim":
        yield lambda body: on_sim_disk(body, _SMALL_BYTES)
        return
    command = ["mount", "-t", "tmpfs", "-o", f"size={_SMALL_BYTES}", "tmpfs", str(tmp_path)]
    if subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("a small file system cannot be mounted here (needs root)")
    yield lambda body: on_real_disk(tmp_path, body)
    subprocess.run(["umount", str(tmp_path)], check=True)


async def read(file: File, offset: int, length: int) -> bytes:
    into = memoryview(bytearray(length))
    return bytes(into[: await file.read(offset, into)])


def content(length: int) -> bytes:
    return bytes(number * number % 251 for number in range(length))


@pytest.mark.parametrize(
    ("offset", "length"), [(0, 1), (0, 4096), (511, 2), (65_535, 2), (10, 200_000), (65_536, 65_536)]
)
def test_written_bytes_are_read(check: Check, offset: int, length: int) -> None:
    async def body(disk: Disk, root: Path) -> None:
        file = await disk.open(root / "a")
        data = content(length)
        await file.write(offset, [data[: length // 3], b"", memoryview(data)[length // 3 :]])
        assert await read(file, offset, length) == data
        assert await read(file, 0, offset) == bytes(offset), "a hole reads as zeros"
        assert file.size() == offset + length
        await file.close()

    check(body)


def test_a_write_changes_nothing_else(check: Check) -> None:
    async def body(disk: Disk, root: Path) -> None:
        file = await disk.open(root / "a")
        expected = bytearray(content(150_000))
        await file.write(0, [expected])
        for offset, length in [(0, 1), (149_999, 1), (512, 512), (65_530, 20), (60_000, 70_000), (700, 3)]:
            piece = b"\xee" * length
            expected[offset : offset + length] = piece
            await file.write(offset, [piece])
            assert await read(file, 0, len(expected)) == expected
        assert file.size() == len(expected)
        await file.write(200_000, [])
        assert file.size() == len(expected), "to write nothing changes nothing"
        await file.close()

    check(body)


def test_reads_end_at_the_end_of_the_file(check: Check) -> None:
    async def body(disk: Disk, root: Path) -> None:
        file = await disk.open(root / "a")
        assert await read(file, 0, 10) == b""
        await file.write(0, [b"x" * 5000])
        assert await read(file, 4000, 9000) == b"x" * 1000
        assert await read(file, 9000, 10) == b""
        assert file.read_now(9000, memoryview(bytearray(10))) == 0
        await file.close()

    check(body)


def test_what_is_read_at_once_is_right_or_not_there(check: Check) -> None:
    async def body(disk: Disk, root: Path) -> None:
        file = await disk.open(root / "a")
        data = content(100_000)
        await file.write(0, [data])
        for offset in range(0, 90_000, 7000):
            into = memoryview(bytearray(10_000))
            count = file.read_now(offset, into)
            assert into[:count] == data[offset : offset + count]
            assert not any(into[count:])
        await file.close()

    check(body)


def test_sync_does_the_writes_of_a_batch(check: Check) -> None:
    async def body(disk: Disk, root: Path) -> None:
        file = await disk.open(root / "a")
        await file.sync([(0, [b"one"]), (10, [b"two", b"three"])])
        assert await read(file, 0, 100) == b"one" + bytes(7) + b"twothree"
        await file.sync([(0, [b"1"]), (0, [b"2"])])
        assert await read(file, 0, 3) == b"2ne", "in their order"
        await file.sync()
        await file.close()

    check(body)


def test_allocate_grows_the_file_with_zeros(check: Check) -> None:
    async def body(disk: Disk, root: Path) -> None:
        file = await disk.open(root / "a")
        await file.write(0, [b"x" * 100])
        await file.allocate(0, MIB)
        assert file.size() == MIB
        assert file.allocated() >= MIB
        assert await read(file, 0, MIB) == b"x" * 100 + bytes(MIB - 100)
        await file.allocate(0, 1000)
        assert file.size() == MIB, "it never becomes smaller"
        await file.allocate(3 * MIB, MIB)
        assert file.size() == 4 * MIB
        assert file.allocated() >= 2 * MIB
        assert await read(file, 2 * MIB, 10) == bytes(10)
        await file.close()

    check(body)


def test_release_leaves_zeros_and_the_size(check: Check) -> None:
    async def body(disk: Disk, root: Path) -> None:
        file = await disk.open(root / "a")
        data = content(MIB)
        await file.write(0, [data])
        before = file.allocated()
        await file.release(128 * KIB, 256 * KIB)
        assert file.size() == MIB
        if file.allocated() < before:  # else the file system has no holes
            assert await read(file, 0, MIB) == data[: 128 * KIB] + bytes(256 * KIB) + data[384 * KIB :]
            assert file.allocated() <= before - 256 * KIB
        await file.allocate(128 * KIB, 256 * KIB)
        assert file.allocated() >= before
        await file.write(130 * KIB, [b"new"])
        assert await read(file, 130 * KIB, 3) == b"new"
        assert await read(file, 384 * KIB, 1000) == data[384 * KIB : 384 * KIB + 1000]
        await file.close()

    check(body)


def test_an_open_keeps_the_content(check: Check) -> None:
    async def body(disk: Disk, root: Path) -> None:
        file = await disk.open(root / "a")
        await file.write(0, [b"old"])
        await file.close()
        again = await disk.open(root / "a")
        assert await read(again, 0, 10) == b"old"
        other = await disk.open(root / "b")
        assert other.size() == 0
        second = await disk.open(root / "a")
        await second.write(3, [b"er"])
        assert await read(again, 0, 10) == b"older", "both are the same file"
        for each in (again, other, second):
            await each.close()

    check(body)


def test_directories(check: Check) -> None:
    async def body(disk: Disk, root: Path) -> None:
        assert await disk.list_directory(root / "x") == []
        await disk.make_directory(root / "x" / "y")
        await disk.make_directory(root / "x" / "y")
        for name in ("c", "b"):
            await (await disk.open(root / "x" / name)).close()
        assert await disk.list_directory(root / "x") == ["b", "c", "y"]
        assert await disk.list_directory(root / "x" / "y") == []
        assert await disk.list_directory(root) == ["x"]
        space = disk.space(root)
        assert 0 < space.free_bytes <= space.capacity_bytes
        assert space.disk and space.disk == disk.space(root / "x").disk, "one disk has one name"

    check(body)


def test_the_room_that_a_directory_takes(check: Check) -> None:
    async def body(disk: Disk, root: Path) -> None:
        assert await disk.directory_bytes(root / "x") == 0
        await disk.make_directory(root / "x" / "y")
        taken = {}
        for name in ("a", "x/b", "x/y/c"):
            file = await disk.open(root / name)
            await file.sync([(0, [bytes(MIB)])])
            taken[name] = file.allocated()
            await file.close()
        assert min(taken.values()) >= MIB
        assert await disk.directory_bytes(root / "x") == taken["x/b"] + taken["x/y/c"]
        assert await disk.directory_bytes(root / "x" / "y") == taken["x/y/c"]

    check(body)


def test_a_missing_directory_is_an_error(check: Check) -> None:
    async def body(disk: Disk, root: Path) -> None:
        with pytest.raises(DiskFailed, match="missing"):
            await disk.open(root / "missing" / "a")
        with pytest.raises(DiskFailed, match="missing"):
            disk.space(root / "missing")

    check(body)


def test_a_full_disk_refuses_and_keeps_what_it_has(check_small: Check) -> None:
    async def body(disk: Disk, root: Path) -> None:
        file = await disk.open(root / "a")
        await file.allocate(0, 4 * MIB)
        data = content(100_000)
        await file.write(0, [data])
        free = disk.space(root).free_bytes
        assert free <= 4 * MIB
        with pytest.raises(NoSpace):
            await file.allocate(4 * MIB, 5 * MIB)
        other = await disk.open(root / "b")
        with pytest.raises(NoSpace):
            await other.write(0, [bytes(5 * MIB)])
        await file.write(4 * MIB - 10, [bytes(10)])  # there is room for this
        assert await read(file, 0, 100_000) == data
        await file.close()
        await other.close()

    check_small(body)


def test_released_room_can_be_used_again(check_small: Check) -> None:
    async def body(disk: Disk, root: Path) -> None:
        file = await disk.open(root / "a")
        await file.allocate(0, 7 * MIB)
        other = await disk.open(root / "b")
        with pytest.raises(NoSpace):
            await other.allocate(0, 3 * MIB)
        before = disk.space(root).free_bytes
        await file.release(MIB, 4 * MIB)
        assert disk.space(root).free_bytes >= before + 4 * MIB or other.allocated()
        await other.allocate(0, 3 * MIB)
        assert file.size() == 7 * MIB
        await file.close()
        await other.close()

    check_small(body)


def test_a_cancelled_call_ends_when_its_work_has_ended(check: Check) -> None:
    async def body(disk: Disk, root: Path) -> None:
        file = await disk.open(root / "a")
        data = bytearray(b"a" * 100_000)
        task = asyncio.ensure_future(file.write(0, [data]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        data[:] = b"b" * len(data)  # the memory is the caller's again
        assert b"b" not in await read(file, 0, len(data))
        await file.close()

    check(body)
