"""Ranges against services in memory, which count requests."""

import pytest
from threefs_client import AsyncFileSystem
from threefs_fsspec import ranges

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.virtual_time import run_virtual
from threefs.errors import NotFound

CONTENT = bytes(range(256)) * 4096  # 16 chunks


def test_ranges_of_many_files_are_one_batch() -> None:
    async def main() -> None:
        files = MemoryFiles()
        core = AsyncFileSystem(files.context)
        for number in range(8):
            await core.write_file(f"/{number}", CONTENT)
        wanted = [(f"/{number}", at, at + 1000) for number in range(8) for at in range(0, len(CONTENT), 100_000)]
        before = len(files.reads())
        assert await ranges.read(core, wanted) == [CONTENT[start:end] for _, start, end in wanted]
        processes = len(files.context.cluster.routing.nodes)
        assert 0 < len(files.reads()) - before <= processes < len(wanted)

    run_virtual(main())


@pytest.mark.parametrize(
    ("start", "end"), [(0, 10), (None, 10), (5, None), (None, None), (-10, None), (-10, -3), (2, -3), (7, 7), (9, 3)]
)
def test_ends_are_those_of_slices(start: int | None, end: int | None) -> None:
    async def main() -> None:
        core = AsyncFileSystem(MemoryFiles().context)
        await core.write_file("/a", CONTENT)
        assert await ranges.read(core, [("/a", start, end), ("/a", 1, 2)]) == [CONTENT[start:end], CONTENT[1:2]]

    run_virtual(main())


def test_the_end_of_the_file_ends_a_range() -> None:
    async def main() -> None:
        core = AsyncFileSystem(MemoryFiles().context)
        await core.write_file("/a", b"0123456789")
        assert await ranges.read(core, [("/a", 5, 100), ("/a", 50, 100), ("/a", -100, 3)]) == [b"56789", b"", b"012"]

    run_virtual(main())


def test_an_error_of_one_file_is_its_own() -> None:
    async def main() -> None:
        core = AsyncFileSystem(MemoryFiles().context)
        await core.write_file("/a", b"0123456789")
        wanted = [("/a", 0, 3), ("/none", 0, 3), ("/none", -3, None), ("/a", -3, None)]
        with pytest.raises(NotFound):
            await ranges.read(core, wanted)
        first, second, third, last = await ranges.read_or_errors(core, wanted)
        assert (first, last) == (b"012", b"789")
        assert isinstance(second, FileNotFoundError) and isinstance(third, FileNotFoundError)

    run_virtual(main())
