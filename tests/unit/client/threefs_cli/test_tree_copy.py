import asyncio
import os
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from threefs_cli import tree_copy
from threefs_cli.remote_tree import RemoteFile, RemoteTree
from threefs_cli.safe_write import SafeWriter
from threefs_cli.tree_copy import gather_bounded
from threefs_client.async_filesystem import AsyncFileSystem

from tests.harness.changing_files import keep_changing, rewrite_while_listed
from tests.harness.memory_cluster import MemoryFiles
from tests.harness.virtual_time import run_virtual


def test_the_limit_of_concurrent_jobs_holds() -> None:
    running = peak = done = 0

    async def job() -> None:
        nonlocal running, peak, done
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0)
        running -= 1
        done += 1

    asyncio.run(gather_bounded((job() for _ in range(20)), 3))
    assert (done, peak) == (20, 3)


def test_the_first_error_cancels_the_rest_and_is_raised_as_itself() -> None:
    started = []

    async def job(number: int) -> None:
        started.append(number)
        if number == 2:
            raise FileNotFoundError("two")
        await asyncio.sleep(0)

    def jobs() -> Iterator[Coroutine[Any, Any, None]]:
        for number in range(1000):
            yield job(number)

    with pytest.raises(FileNotFoundError, match="two"):
        asyncio.run(gather_bounded(jobs(), 2))
    assert len(started) < 10


_PIECE = 64 << 10


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_copy, "PIECE_BYTES", _PIECE)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("sparse", [False, True])
def test_a_file_that_changes_all_the_time_is_copied_in_full(sparse: bool) -> None:
    """A log that others append to all the time was asked for without end, and without a pause."""

    async def run() -> None:
        files = MemoryFiles()
        fs = AsyncFileSystem(files.context)
        async with await fs.open("/log", "wb") as log:
            await fs.write_batch([(log, place * _PIECE, b"x" * _PIECE) for place in ((0, 3) if sparse else range(4))])
        keep_changing(files, b"log")
        async with await fs.open("/log") as log:
            pieces = await tree_copy._remote_data(log, 4 * _PIECE)
        assert [offset for offset, _ in pieces] == [0, _PIECE, 2 * _PIECE, 3 * _PIECE]

    run_virtual(run())


@pytest.mark.usefixtures("small_pieces")
def test_what_a_truncate_has_just_removed_is_no_hole() -> None:
    """It is written anew a moment later, and was never zeros."""

    async def run() -> None:
        files = MemoryFiles()
        fs = AsyncFileSystem(files.context)
        await fs.write_file("/a", b"x" * 4 * _PIECE)
        async with await fs.open("/a") as file:
            rewritten = rewrite_while_listed(files, fs, "/a", b"y" * 4 * _PIECE)
            pieces = await tree_copy._remote_data(file, 4 * _PIECE)
        assert rewritten() and len(pieces) == 4

    run_virtual(run())


@pytest.mark.usefixtures("small_pieces")
def test_a_file_that_was_cut_since_it_was_listed_does_not_end_in_zeros(tmp_path: Path) -> None:
    async def run() -> None:
        files = MemoryFiles()
        fs = AsyncFileSystem(files.context)
        await fs.write_file("/a", b"x" * 4 * _PIECE)
        found = RemoteFile("/a", str(tmp_path / "a"), (await fs.stat("/a")).inode, 4 * _PIECE, 0o644)
        await fs.truncate("/a", 5)
        moved: list[int] = []
        await tree_copy._get_large(fs, SafeWriter(str(tmp_path)), found, lambda files, size: moved.append(size))
        assert (tmp_path / "a").read_bytes() == b"x" * 5 and sum(moved) == 5

    asyncio.run(run())


@pytest.mark.usefixtures("small_pieces")
def test_a_copy_to_a_pipe_that_nobody_reads_can_be_interrupted(tmp_path: Path) -> None:
    """It would hang if it could not. With a reader it brings everything."""
    content = os.urandom(5 * _PIECE // 2)
    os.mkfifo(tmp_path / "pipe")

    async def run() -> None:
        fs = AsyncFileSystem(MemoryFiles().context)
        await fs.write_file("/a", content)
        tree = RemoteTree(bases={str(tmp_path)})
        tree.files.append(RemoteFile("/a", str(tmp_path / "pipe"), (await fs.stat("/a")).inode, len(content), 0o644))

        async def get() -> None:
            await tree_copy.get(fs, tree, lambda files, size: None, named_in_full=True)

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(get(), 0.05)
        reading = asyncio.create_task(asyncio.to_thread((tmp_path / "pipe").read_bytes))
        await get()
        assert await reading == content

    asyncio.run(run())


def test_a_local_file_system_that_gives_less_than_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of those in user space do."""
    (tmp_path / "file").write_bytes(bytes(range(200)))
    whole = os.preadv
    monkeypatch.setattr(os, "preadv", lambda file, views, offset: whole(file, [views[0][:7]], offset))
    with (tmp_path / "file").open("rb") as file:
        assert bytes(tree_copy._read_piece(file.fileno(), 100, 50)) == bytes(range(50, 150))
        assert bytes(tree_copy._read_piece(file.fileno(), 100, 150)) == bytes(range(150, 200))
        assert bytes(tree_copy._read_piece(file.fileno(), 100, 200)) == b""
