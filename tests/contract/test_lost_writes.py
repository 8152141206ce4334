"""Bytes that a mount has taken, and could not store."""

import asyncio
import os
from typing import Any

import pytest
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_mount.files.open_file import OpenFile
from threefs_mount.files.open_file_table import OpenFileTable

from tests.harness import open_files
from tests.harness.memory_cluster import MemoryFiles
from tests.harness.open_files import ROOT, closed
from tests.unit.client.threefs_mount.files.test_open_file import play
from tests.unit.client.threefs_mount.files.test_open_file_table import lose_session
from threefs.errors import LockLost, NoSpace
from threefs.wire import meta_pb2 as pb
from threefs.wire import storage_pb2


def fill_disks(files: MemoryFiles) -> None:
    """Storage takes no bytes any more."""
    apply = files.storage._apply

    def refuse(write: Any, *more: Any) -> Any:
        if write.kind == storage_pb2.WRITE:
            raise NoSpace("the disks are full")
        return apply(write, *more)

    files.storage._apply = refuse  # type: ignore[assignment, method-assign]


def test_lost_bytes_do_not_make_the_file_longer() -> None:
    """Until the next sync they were read as zeros."""

    async def scene(files: MemoryFiles, file: OpenFile) -> None:
        await file.write(0, b"short")
        await file.sync()
        before = file.errors.current
        fill_disks(files)
        await file.write(5, b" and more")
        assert file.length == 14
        file.start_flush()
        await files.context.clock.sleep(1)
        assert file.errors.check(before) is not None
        assert file.overlay_local(open_files.copy_of(files.meta.files[b"a"])).length == 5
        assert bytes(await file.read(0, 100)) == b"short"

    play(scene)


@pytest.mark.parametrize("how", ["truncate", "open", "read"])
def test_a_truncate_or_a_read_does_not_fail_because_of_lost_bytes(how: str) -> None:
    """They failed with the error of an append: a full cluster could not be relieved by `> log`."""

    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        number, _ = await files.open(inode, os.O_RDWR, ROOT)
        file = files.handle(number).file
        fill_disks(memory)
        await files.write(number, 0, b" and more", append=True)
        other = number
        if how == "truncate":
            await files.truncate(number, 0, ROOT)
        elif how == "open":
            other, _ = await files.open(inode, os.O_RDWR | os.O_TRUNC, ROOT)
        else:
            assert bytes(await file.read(0, 100)) == b"content"
        assert file.length == (0 if how == "truncate" else 7)  # the open of this cluster in memory only opens
        with pytest.raises(NoSpace):
            await files.handle(number).sync()
        for handle in {number, other}:
            await closed(files, handle)

    open_files.play(scene)


def test_what_is_appended_under_a_lock_is_not_stored_when_the_lock_was_lost() -> None:
    """The lock was lost while the length was reported before the append. A program opened the file anew, and the bytes
    were stored under its session."""

    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        asked, answers, settle = asyncio.Event(), asyncio.Event(), memory.meta._sync

        async def slow(request: pb.SyncRequest) -> pb.InodeReply:
            asked.set()
            await answers.wait()
            return await settle(request)

        number, _ = await files.open(inode, os.O_RDWR, ROOT)
        await files.write(number, 0, b"C")
        await files.write(number, 0, b" under it", append=True)
        memory.meta._sync = slow  # type: ignore[method-assign]
        flushing = asyncio.ensure_future(files.handle(number).file.flush())
        await asked.wait()
        lose_session(memory)
        files.on_locks_lost(inode)
        new, _ = await files.open(inode, os.O_RDWR, ROOT)
        answers.set()
        with pytest.raises(LockLost):
            await flushing
        for handle in (new, number):
            await closed(files, handle)
        assert await AsyncFileSystem(memory.context).read_file("/a") == b"Content"

    open_files.play(scene)
