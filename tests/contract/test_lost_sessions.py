"""Write sessions of a mount that were lost with its lease."""

import asyncio
import os

from threefs_mount.files.open_file_table import OpenFileTable

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.open_files import ROOT, closed, play
from tests.unit.client.threefs_mount.files.test_open_file_table import lose_session
from threefs.wire import meta_pb2 as pb


def test_files_that_are_open_for_writing_are_opened_again_though_nobody_writes() -> None:
    """A file without a session was freed when it was removed later, and its program read ESTALE."""

    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        files.start()
        number, _ = await files.open(inode, os.O_RDWR, ROOT)
        reader, _ = await files.open(inode, os.O_RDONLY, ROOT)
        lose_session(memory)
        await asyncio.sleep(1)
        assert memory.meta.sessions == {files.handle(number).file.session}
        await closed(files, number)
        assert not memory.meta.sessions and not memory.context.lease._holders
        await closed(files, reader)
        await files.stop()

    play(scene)


def test_a_file_that_is_closed_while_it_is_opened_again_keeps_no_session() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        opening, asked = memory.meta._open, asyncio.Event()

        async def slow(request: pb.OpenRequest) -> pb.OpenReply:
            asked.set()
            await asyncio.sleep(1)
            return await opening(request)

        files.start()
        number, _ = await files.open(inode, os.O_RDWR, ROOT)
        memory.meta._open = slow  # type: ignore[method-assign]
        lose_session(memory)
        await asyncio.wait_for(asked.wait(), 10)
        await closed(files, number)
        assert not memory.meta.sessions and not memory.context.lease._holders and files.get(inode) is None
        await files.stop()

    play(scene)
