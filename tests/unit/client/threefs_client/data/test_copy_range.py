import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
import pytest
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_client.data import copy_range

from tests.harness.changing_files import keep_changing, rewrite_while_listed
from tests.harness.memory_cluster import MemoryFiles
from tests.harness.virtual_time import run_virtual
from threefs.errors import InvalidArgument, NoSpace, QuotaExceeded
from threefs.ids import InodeId
from threefs.inflight_ranges import writer_of
from threefs.layout import from_wire

CHUNK = 64 << 10


def play(scene: Callable[[MemoryFiles, AsyncFileSystem], Awaitable[None]]) -> None:
    async def run() -> None:
        files = MemoryFiles(chunk_bytes=CHUNK)
        await scene(files, AsyncFileSystem(files.context))

    run_virtual(run())


def content_of(size: int) -> bytes:
    return np.random.default_rng(1).integers(0, 256, size, dtype=np.uint8).tobytes()


@pytest.mark.parametrize(
    ("offset", "at", "length"),
    [
        (0, 0, 20 << 20),
        (5, 9, 9 << 20),
        (CHUNK, 0, 1),
        (0, 77, CHUNK),
        (CHUNK, copy_range.PIECE_BYTES - 2 * CHUNK, 4 * CHUNK),  # two pieces, though it is shorter than one
        (0, copy_range.PIECE_BYTES - CHUNK, CHUNK + 1),
        (0, copy_range.PIECE_BYTES - CHUNK, CHUNK),
    ],
)
def test_bytes_arrive_as_they_were(offset: int, at: int, length: int) -> None:
    whole = content_of((9 << 20) + 13)

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/a", whole)
        async with await fs.open("/a") as source, await fs.open("/b", "wb+") as destination:
            part = whole[offset : offset + length]
            assert await fs.copy_range(source, offset, destination, at, length) == len(part)
            assert await destination.read() == bytes(at) + part
        assert await fs.read_file("/b") == bytes(at) + part

    play(scene)


def test_buffered_bytes_are_copied_and_overwritten() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        async with await fs.open("/a", "wb+") as source, await fs.open("/b", "wb+") as destination:
            await source.write(b"new")
            await destination.write(b"older")
            assert await fs.copy_range(source, 0, destination, 1, 100) == 3
            assert await fs.copy_range(source, 3, destination, 1, 100) == 0
            destination.seek(0)
            assert await destination.read() == b"onewr"

    play(scene)


def test_holes_stay_holes_and_take_the_place_of_data() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        async with await fs.open("/a", "wb+") as source, await fs.open("/b", "wb+") as destination:
            source.seek(2 * CHUNK)
            await source.write(b"x" * CHUNK)
            await source.allocate(0, 5 * CHUNK)
            await destination.write(b"y" * 2 * CHUNK)
            assert await fs.copy_range(source, 0, destination, 0, 5 * CHUNK) == 5 * CHUNK
            inode = destination.handle.inode
            assert sorted(c.number for c in files.storage.data if c.inode == inode) == [2]
            destination.seek(0)
            assert await destination.read() == bytes(2 * CHUNK) + b"x" * CHUNK + bytes(2 * CHUNK)

    play(scene)


def test_within_one_file_ranges_must_not_overlap() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        async with await fs.open("/a", "wb+") as file:
            await file.write(b"abcdef")
            assert await fs.copy_range(file, 0, file, 6, 6) == 6
            for offset, at in ((0, 1), (3, 0)):
                with pytest.raises(InvalidArgument):
                    await fs.copy_range(file, offset, file, at, 6)
            with pytest.raises(InvalidArgument):
                await fs.copy_range(file, -1, file, 20, 6)
            with pytest.raises(InvalidArgument):
                await fs.copy_range("/a", 0, file, 20, 6)
            file.seek(0)
            assert await file.read() == b"abcdefabcdef"

    play(scene)


def test_a_failed_write_is_raised_and_the_rest_is_not_attempted() -> None:
    whole = content_of(3 * copy_range.PIECE_BYTES)

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/a", whole)
        async with await fs.open("/a") as source, await fs.open("/b", "wb+") as destination:
            files.storage.before = [
                lambda address, method, request: NoSpace("full") if method.name == "Write" else None
            ] * 1000
            with pytest.raises(NoSpace):
                await fs.copy_range(source, 0, destination, 0, len(whole))
            files.storage.before = []
            destination.handle.over_quota = files.meta.over_quota = True
            with pytest.raises(QuotaExceeded):
                await fs.copy_range(source, 0, destination, 0, len(whole))

    play(scene)


def test_an_append_that_is_still_to_come_is_copied_too() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/a", b"o" * CHUNK)
        inode = files.meta.files[b"a"]
        inode.length = 2 * CHUNK
        inode.appends.add(writer=writer_of(b"o" * 16), offset=CHUNK, end=2 * CHUNK)
        async with await fs.open("/a") as source, await fs.open("/b", "wb+") as destination:
            copy = asyncio.ensure_future(fs.copy_range(source, 0, destination, 0, 2 * CHUNK))
            assert not (await asyncio.wait([copy], timeout=1.0))[0]
            assert files.meta.chunks is not None
            layout, number = from_wire(inode.layout), InodeId(inode.inode)
            await files.meta.chunks.write(layout, number, 1, 0, b"a" * CHUNK, timeout_s=5)
            del inode.appends[:]
            assert await copy == 2 * CHUNK
        assert await fs.read_file("/b") == b"o" * CHUNK + b"a" * CHUNK

    play(scene)


@pytest.mark.parametrize("changes", [15, 1000])
def test_a_file_that_others_keep_changing_is_copied(changes: int) -> None:
    """It was asked for without a pause, until it stays as it is for a moment. Its holes are found again and again."""
    data = (1, 3) if changes < 100 else range(4)

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        async with await fs.open("/log", "wb") as log:
            await fs.write_batch([(log, n * CHUNK, b"x" * CHUNK) for n in data])
        keep_changing(files, b"log", changes)
        async with await fs.open("/log") as source, await fs.open("/copy", "wb") as destination:
            assert await fs.copy_range(source, 0, destination, 0, 4 * CHUNK) == 4 * CHUNK
        assert await fs.read_file("/copy") == b"".join((b"x" if n in data else b"\0") * CHUNK for n in range(4))

    play(scene)


def test_what_a_truncate_has_just_removed_is_no_hole() -> None:
    """It is written anew a moment later, and was never zeros."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/a", b"x" * 4 * CHUNK)
        async with await fs.open("/a") as source, await fs.open("/b", "wb") as destination:
            rewritten = rewrite_while_listed(files, fs, "/a", b"y" * 4 * CHUNK)
            assert await fs.copy_range(source, 0, destination, 0, 4 * CHUNK) == 4 * CHUNK
        assert rewritten() and await fs.read_file("/b") == b"y" * 4 * CHUNK

    play(scene)
