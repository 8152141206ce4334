"""Answers to single requests, over a cluster in memory. What the kernel asks is in tests/cluster."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from threefs_fuse.requests import Caller
from threefs_mount.cache.validity import Validity
from threefs_mount.files.open_file_table import OpenFileTable
from threefs_mount.vfs import ThreefsVfs

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.open_files import play
from threefs.errors import SessionLost

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
