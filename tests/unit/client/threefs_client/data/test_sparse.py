from collections.abc import Awaitable, Callable

import pytest
from threefs_client.async_file import AsyncFile
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_client.data.fallocate import Allocation
from threefs_client.data.sparse import data_ranges

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.virtual_time import run_virtual
from threefs.errors import NoDataThere

CHUNK = 64 << 10


def play(scene: Callable[[AsyncFile], Awaitable[None]]) -> None:
    async def run() -> None:
        files = MemoryFiles(chunk_bytes=CHUNK)
        async with await AsyncFileSystem(files.context).open("/a", "wb+") as file:
            await scene(file)

    run_virtual(run())


async def put(file: AsyncFile, *chunks: int) -> None:
    for number in chunks:
        file.seek(number * CHUNK)
        await file.write(b"x" * CHUNK)
    await file.flush()


async def stretches(file: AsyncFile, offset: int, end: int) -> list[tuple[int, int]]:
    """Neighbours may come apart where pages meet."""
    found: list[tuple[int, int]] = []
    async for begin, stop in data_ranges(file.handle, offset, end):
        if found and found[-1][1] == begin:
            found[-1] = found[-1][0], stop
        else:
            found.append((begin, stop))
    return found


def test_data_and_holes_are_found_from_anywhere() -> None:
    async def scene(file: AsyncFile) -> None:
        await put(file, 1, 2, 5)
        await file.truncate(8 * CHUNK)
        assert await file.seek_data(0) == CHUNK
        assert await file.seek_data(CHUNK + 7) == CHUNK + 7
        assert await file.seek_data(3 * CHUNK) == 5 * CHUNK
        assert await file.seek_hole(0) == 0
        assert await file.seek_hole(CHUNK + 7) == 3 * CHUNK
        assert await file.seek_hole(4 * CHUNK) == 4 * CHUNK
        assert await file.seek_hole(5 * CHUNK) == 6 * CHUNK

    play(scene)


def test_behind_all_data_lies_a_hole_but_behind_the_end_nothing() -> None:
    async def scene(file: AsyncFile) -> None:
        with pytest.raises(NoDataThere):
            await file.seek_hole(0)
        await file.write(b"x" * 10)
        assert await file.seek_data(9) == 9
        assert await file.seek_hole(0) == 10, "what is held back counts"
        for offset in (10, 11, -1):
            with pytest.raises(NoDataThere):
                await file.seek_hole(offset)
            with pytest.raises(NoDataThere):
                await file.seek_data(offset)
        await file.allocate(0, 100)
        assert await file.seek_hole(0) == 10
        with pytest.raises(NoDataThere):
            await file.seek_data(10)

    play(scene)


def test_long_files_are_looked_at_page_by_page() -> None:
    """The memory storage answers with three chunks at a time."""

    async def scene(file: AsyncFile) -> None:
        await put(file, *range(20), *range(25, 40, 2))
        assert await stretches(file, 0, 41 * CHUNK) == [
            (0, 20 * CHUNK),
            *((number * CHUNK, (number + 1) * CHUNK) for number in range(25, 40, 2)),
        ]
        assert await stretches(file, 5, 19 * CHUNK + 3) == [(5, 19 * CHUNK + 3)]
        assert await file.seek_hole(0) == 20 * CHUNK

    play(scene)


def test_a_punched_hole_is_seen() -> None:
    async def scene(file: AsyncFile) -> None:
        await put(file, *range(6))
        await file.allocate(2 * CHUNK, 2 * CHUNK, Allocation.PUNCH_HOLE | Allocation.KEEP_LENGTH)
        assert await stretches(file, 0, 6 * CHUNK) == [(0, 2 * CHUNK), (4 * CHUNK, 6 * CHUNK)]

    play(scene)
