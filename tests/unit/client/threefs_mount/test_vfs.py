"""Answers to single requests, over a cluster in memory. What the kernel asks is in tests/cluster."""

import asyncio
import fcntl
import os
from collections.abc import Coroutine
from typing import Any

import pytest
from threefs_fuse.requests import Caller, Lock
from threefs_mount.cache.validity import Validity
from threefs_mount.files.open_file_table import OpenFileTable
from threefs_mount.vfs import ThreefsVfs

from tests.harness.lock_meta import LockMeta
from tests.harness.memory_cluster import MemoryFiles
from tests.harness.open_files import ROOT, play
from threefs.errors import SessionLost
from threefs.wire import meta_pb2 as pb

PROGRAM = Caller(0, 0, 7)


def test_a_thread_comes_back_to_a_right_name_after_a_slow_question_for_attributes() -> None:
    """The kernel asks for those of the directory in which a path begins, before it looks up the first name. That took
    the time in which the thread was to come back, and the program got ESTALE."""

    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        mount = ThreefsVfs(memory.context, files, Validity(1.0), lambda: None)
        call = mount._call

        async def slow_call(*arguments: Any) -> Any:
            await asyncio.sleep(2.0)
            return await call(*arguments)

        mount._call = slow_call  # type: ignore[method-assign, assignment]
        files.kernel_attrs.may_have_former_name = lambda *_: True  # type: ignore[method-assign]
        with pytest.raises(SessionLost), mount._former_names.excluded(inode, PROGRAM.pid):
            pytest.fail("it works on the file before it has looked again")
        question = mount.getattr(inode, PROGRAM, None)
        assert isinstance(question, Coroutine) and (await question).size == len(b"content")
        with mount._former_names.excluded(inode, PROGRAM.pid):
            pass
        await mount.close()

    play(scene)


@pytest.mark.parametrize("flock", [False, True])
def test_an_unlock_waits_for_no_chain_unless_there_is_a_lock(flock: bool) -> None:
    """Programs unlock what they have not locked, to be sure. With own writes on a chain that is not served such a call
    hung, and no signal ended it."""

    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        mount, service = ThreefsVfs(memory.context, files, Validity(1.0), lambda: None), LockMeta()

        async def lock(request: pb.LockRequest) -> Any:
            return await service.answer("Lock", request)

        async def drop_pages(_: bytes) -> None:
            pass

        memory.meta._lock, mount.notify_and_wait = lock, drop_pages  # type: ignore[attr-defined]
        number, _ = await files.open(inode, os.O_RDWR, ROOT)
        await files.write(number, 0, b"CONTENT")
        stored = len(memory.storage.calls)

        async def change(kind: int) -> None:
            answer = mount.setlk(inode, PROGRAM, number, 1, Lock(0, (1 << 63) - 1, kind, PROGRAM.pid), flock)
            assert isinstance(answer, Coroutine)
            await answer

        await change(fcntl.F_UNLCK)
        assert len(memory.storage.calls) == stored and not service.requests
        await change(fcntl.F_WRLCK)
        await files.write(number, 0, b"CONTENT")
        stored = len(memory.storage.calls)
        await change(fcntl.F_UNLCK)
        assert len(memory.storage.calls) > stored and not service.holder, "the next holder reads what was written"
        await change(fcntl.F_UNLCK)
        assert len(service.requests) == 2
        await mount.close()

    play(scene)
