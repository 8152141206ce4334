"""Write sessions of a mount: those that were lost with its lease, and those that wait for a service."""

import asyncio
import os

from threefs_mount.files.open_file_table import OpenFileTable

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.open_files import ROOT, closed, play
from tests.unit.client.threefs_mount.files.test_open_file_table import lose_session
from threefs.errors import ThreefsError, Unavailable
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


def test_opens_of_one_file_do_not_wait_for_each_other_without_an_end() -> None:
    """Each one began its own time when the one before had failed: the tenth waited ten times as long."""

    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        number, _ = await files.open(inode, os.O_RDWR, ROOT)
        memory.peers.meta_faults = [(False, Unavailable("it is down"))] * 1_000_000
        clock = memory.context.clock
        began_s = clock.monotonic()
        opens = [files.open(inode, flags, ROOT) for flags in (os.O_RDONLY, os.O_RDWR) for _ in range(5)]
        outcomes = await asyncio.gather(*opens, return_exceptions=True)
        assert all(isinstance(outcome, ThreefsError) for outcome in outcomes)
        assert clock.monotonic() - began_s < 2 * memory.context.options.timeout_s + 1
        memory.peers.meta_faults.clear()
        await closed(files, number)

    play(scene)
