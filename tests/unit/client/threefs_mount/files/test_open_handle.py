"""What a handle stores and reports, when the lease of its mount has ended in between, or a call has failed."""

import asyncio
import contextlib
import os
from typing import Any

import pytest
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_client.data.fallocate import Allocation
from threefs_mount.files.open_file_table import OpenFileTable

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.open_files import ROOT, closed, play
from threefs.errors import ConnectionLost, LockLost, NoSpace, SessionLost, ThreefsError


@pytest.mark.parametrize("how", ["write", "append"])
@pytest.mark.parametrize("ending", ["sync", "close", "background"])
@pytest.mark.parametrize("renewed", [False, True])
def test_what_was_not_sent_when_the_lease_ended_is_sent_under_a_new_session(
    how: str, ending: str, renewed: bool
) -> None:
    """Without a session the file may be gone, and its bytes would lie in chunks that belong to none. Appended bytes
    were refused."""

    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        number, _ = await files.open(inode, os.O_RDWR | (os.O_APPEND if how == "append" else 0), ROOT)
        await files.write(number, 7, b"!", append=how == "append")
        memory.meta.lease += 1
        memory.meta.sessions.clear()
        if renewed:
            memory.context.lease.granted(memory.meta.lease)
        else:
            memory.context.lease._valid_until = 0.0  # this process has slept
        file = files.handle(number).file
        if ending == "sync":
            await files.handle(number).sync()
        elif ending == "background":
            file.start_flush()
            await asyncio.sleep(1)
        if ending != "close":
            assert len(memory.meta.sessions) == 1 == memory.context.lease._holders
            assert bytes(await file.read(0, 100)) == b"content!"
        await closed(files, number)
        assert await AsyncFileSystem(memory.context).read_file("/a") == b"content!"
        assert not memory.meta.sessions and not memory.context.lease._holders

    play(scene)


@pytest.mark.parametrize("how", ["write", "append"])
def test_nothing_is_sent_to_a_file_that_was_removed_when_the_lease_ended(how: str) -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        number, _ = await files.open(inode, os.O_RDWR, ROOT)
        handle = files.handle(number)
        await files.write(number, 0, b"?", append=how == "append")
        memory.meta.lease += 1
        memory.meta.sessions.clear()
        del memory.meta.files[b"a"]
        memory.context.lease._valid_until = 0.0
        before = len(memory.storage.calls)
        with pytest.raises(LockLost):  # EIO
            await handle.sync()
        for call in (files.write(number, 0, b"?"), handle.file.read(0, 1 << 20)):
            with pytest.raises(SessionLost):  # ESTALE
                await call
        await asyncio.sleep(5)
        assert "Write" not in [name for _, name, _ in memory.storage.calls[before:]]
        with contextlib.suppress(ThreefsError):
            await closed(files, number)
        assert not memory.context.lease._holders and files.get(inode) is None

    play(scene)


def test_bytes_are_stored_although_nobody_renews_the_lease() -> None:
    """Nothing shows that the session has ended."""

    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        number, _ = await files.open(inode, os.O_RDWR, ROOT)
        await files.write(number, 0, b"C")
        memory.context.lease._valid_until = 0.0
        memory.peers.meta_faults += [(False, ConnectionLost("gone"))] * 100_000
        with pytest.raises(ThreefsError):
            await files.handle(number).sync()
        memory.peers.meta_faults.clear()
        await files.handle(number).sync()
        assert await AsyncFileSystem(memory.context).read_file("/a") == b"Content"
        await closed(files, number)

    play(scene)


def _full_from_the_second_chunk(address: str, method: Any, request: Any) -> ThreefsError | None:
    return NoSpace("full") if method.name == "Write" and request.writes[0].chunk.index else None


@pytest.mark.parametrize("how", ["allocate", "copy"])
def test_a_change_that_fails_halfway_is_reported_by_fsync(how: str) -> None:
    """Until its change counter says that the file has changed, other mounts keep their pages of it."""

    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        await AsyncFileSystem(memory.context).write_file("/a", bytes(range(256)) * 1024)
        number, _ = await files.open(memory.meta.files[b"a"].inode, os.O_RDWR, ROOT)
        file = files.handle(number).file
        was = file.inode.change
        memory.storage.before = [_full_from_the_second_chunk] * 1000
        with pytest.raises(NoSpace):
            if how == "allocate":
                await files.allocate(number, 5, file.length - 10, Allocation.ZERO_RANGE | Allocation.KEEP_LENGTH)
            else:
                await files.copy(number, file.length // 2, number, 5, file.length // 2 - 5)
        memory.storage.before = []
        assert await file.read(0, 100) != bytes(range(100)), "a part of it has happened"
        await files.handle(number).sync()
        assert memory.meta.files[b"a"].change > was
        await closed(files, number)

    play(scene)
