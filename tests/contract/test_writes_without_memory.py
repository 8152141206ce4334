"""A program's small writes when there is no memory to send them on: they stay in the buffer of the file."""

from collections.abc import Awaitable, Callable

import pytest
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_client.data.dirty_extents import DirtyExtents
from threefs_client.data.write_behind import WriteBehind
from threefs_client.data.write_budget import WriteBudget
from threefs_client.data.write_buffer import WriteBuffer

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.virtual_time import run_virtual
from threefs.errors import NoSpace


def fail(*_: object, **__: object) -> None:
    raise MemoryError


def play(scene: Callable[[MemoryFiles, AsyncFileSystem], Awaitable[None]]) -> None:
    files = MemoryFiles()

    async def run() -> None:
        await scene(files, AsyncFileSystem(files.context))

    run_virtual(run())


def test_small_writes_that_there_is_no_memory_to_hand_over_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were gone, with their share of `max_dirty_bytes`, and the close said that everything is stored."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        file = await fs.open("/a", "wb")
        await file.write(b"a" * 1000)
        with monkeypatch.context() as patched:
            patched.setattr(DirtyExtents, "add", fail)
            with pytest.raises(MemoryError):
                await file.write(b"b" * (1 << 20))
        assert files.context.write_budget.used_bytes == 0 and file.tell() == 1000
        assert await file.write(b"b" * (1 << 20)) == 1 << 20
        await file.close()
        assert await fs.read_file("/a") == b"a" * 1000 + b"b" * (1 << 20)
        assert files.context.write_budget.used_bytes == 0

    play(scene)


def test_small_writes_that_there_is_no_memory_to_flush_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """They go back without a copy: the copy failed as well, and the next flush said that everything is stored."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        file = await fs.open("/a", "wb")
        await file.write(b"abc")
        with monkeypatch.context() as patched:
            patched.setattr(file.handle, "write", fail)
            patched.setattr(WriteBuffer, "append", fail)
            with pytest.raises(MemoryError):
                await file.flush()
        await file.close()
        assert await fs.read_file("/a") == b"abc"

    play(scene)


def test_small_writes_that_start_no_sending_for_want_of_memory_are_in_the_file_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The buffer of the file and the dirty extents had the same bytearray, and later bytes were put into both."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        file = await fs.open("/a", "wb")
        with monkeypatch.context() as patched:
            patched.setattr(WriteBehind, "_start", fail)
            for _ in range(100):
                assert await file.write(b"a" * 100_000) == 100_000
        assert await file.write(b"b" * 100_000) == 100_000
        await file.close()
        assert await fs.read_file("/a") == b"a" * 10_000_000 + b"b" * 100_000
        assert files.context.write_budget.used_bytes == 0

    play(scene)


def test_a_share_of_the_budget_comes_back_when_sending_cannot_be_started_as_it_gets_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        file = await fs.open("/a", "wb")
        await file.write(b"a" * 1000)
        with monkeypatch.context() as patched:
            patched.setattr(WriteBehind, "_start", fail)
            patched.setattr(WriteBudget, "is_short", True)  # another file waits for it
            assert await file.write(b"b" * (1 << 20)) == 1 << 20
        await file.close()
        assert await fs.read_file("/a") == b"a" * 1000 + b"b" * (1 << 20)
        assert files.context.write_budget.used_bytes == 0

    play(scene)


def test_a_file_takes_further_writes_after_a_flush_that_was_refused() -> None:
    """The error's traceback had a view of the buffer, which could not grow any more, until the collector came by."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        for mode in ("wb", "ab"):
            file = await fs.open("/a", mode)
            await file.write(b"abc")
            files.peers.storage.before[:] = [lambda *_: NoSpace("no room")] * 5
            with pytest.raises(NoSpace) as refused:
                await file.flush()
            files.peers.storage.before.clear()
            assert await file.write(b"de") == 2, f"while {refused} is kept"
            await file.close()
        assert await fs.read_file("/a") == b"abcde" * 2

    play(scene)
