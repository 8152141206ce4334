import asyncio
import os

import pytest
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_mount.files import deferred_closes
from threefs_mount.files.deferred_closes import CLOSE_DELAY_S, MAX_DEFERRED
from threefs_mount.files.open_file_table import OpenFileTable

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.open_files import ROOT, closed, play
from threefs.errors import SessionLost, Unavailable
from threefs.wire import meta_pb2 as pb


def test_sessions_without_a_waiting_program_end_later_and_together() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        for number in range(10):
            request = pb.CreateRequest(place=pb.Place(path=b"new%d" % number), mutation=memory.context.meta.mutation())
            handle, _ = await files.create(request, os.O_WRONLY, ROOT)
            assert files.release(handle) is None
        assert len(memory.meta.sessions) == memory.context.lease._holders == 10
        before = len(memory.meta.answered)
        await asyncio.sleep(2 * CLOSE_DELAY_S)
        assert len(memory.meta.answered) == before + 1  # one message, one commit
        assert not memory.meta.sessions and not memory.context.lease._holders and files.get(inode) is None

    play(scene)


def test_a_new_open_goes_on_under_the_deferred_session() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        first, _ = await files.open(inode, os.O_WRONLY, ROOT)
        assert files.release(first) is None
        (session,) = memory.meta.sessions
        second, _ = await files.open(inode, os.O_WRONLY, ROOT)
        await asyncio.sleep(2 * CLOSE_DELAY_S)
        assert set(memory.meta.sessions) == {session}
        await files.write(second, 0, b"C")
        await closed(files, second)
        assert not memory.meta.sessions and not memory.context.lease._holders

    play(scene)


def test_an_open_for_reading_keeps_no_session() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        writer, _ = await files.open(inode, os.O_WRONLY, ROOT)
        assert files.release(writer) is None
        reader, _ = await files.open(inode, os.O_RDONLY, ROOT)
        await asyncio.sleep(2 * CLOSE_DELAY_S)
        assert not memory.meta.sessions and inode in memory.context.lease._read_opens
        await closed(files, reader)
        assert memory.context.lease._is_idle and files.get(inode) is None

    play(scene)


def test_an_open_under_way_keeps_the_session_and_delays_no_other() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        first, _ = await files.open(inode, os.O_WRONLY, ROOT)
        request = pb.CreateRequest(place=pb.Place(path=b"new"), mutation=memory.context.meta.mutation())
        other, _ = await files.create(request, os.O_WRONLY, ROOT)
        assert files.release(first) is None and files.release(other) is None
        opened = files.get(inode)
        assert opened is not None
        async with opened.session_lock:
            await asyncio.sleep(2 * CLOSE_DELAY_S)
            assert len(memory.meta.sessions) == 1 and opened.session in memory.meta.sessions
        await asyncio.sleep(2 * CLOSE_DELAY_S)
        assert not memory.meta.sessions and not memory.context.lease._holders

    play(scene)


def test_a_session_that_cannot_be_ended_is_left_to_the_lease() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        number, _ = await files.open(inode, os.O_WRONLY, ROOT)
        assert files.release(number) is None
        memory.peers.meta_faults.append((False, SessionLost("it has ended")))
        await asyncio.sleep(2 * CLOSE_DELAY_S)
        assert not memory.context.lease._holders and files.get(inode) is None

    play(scene)


def test_with_too_many_deferred_sessions_a_close_waits() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        for _ in range(deferred_closes._MAX_BATCHES):
            files._deferred_closes._batches.attempt("closing", asyncio.sleep(60))
        ending = None
        for number in range(MAX_DEFERRED + 1):
            assert ending is None
            request = pb.CreateRequest(place=pb.Place(path=b"new%d" % number), mutation=memory.context.meta.mutation())
            handle, _ = await files.create(request, os.O_WRONLY, ROOT)
            ending = files.release(handle)
        assert ending is not None
        await ending
        assert len(memory.meta.sessions) == MAX_DEFERRED

    play(scene)


def test_at_the_end_deferred_sessions_are_closed() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        number, _ = await files.open(inode, os.O_WRONLY, ROOT)
        assert files.release(number) is None and memory.meta.sessions
        await files.stop()
        assert not memory.meta.sessions and files.get(inode) is not None

    play(scene)


def test_a_session_whose_end_failed_is_ended_later() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        other, _ = await files.open(inode, os.O_RDONLY, ROOT)
        numbers = []
        for name in (b"one", b"two"):
            request = pb.CreateRequest(place=pb.Place(path=name), mutation=memory.context.meta.mutation())
            numbers.append((await files.create(request, os.O_WRONLY, ROOT))[0])
        memory.peers.meta_faults += [(False, Unavailable("gone"))] * 10_000
        for number in numbers:
            assert files.release(number) is None, "nobody waits for it"
        await asyncio.sleep(30)
        memory.peers.meta_faults.clear()
        assert len(memory.meta.sessions) == len(memory.context.session_closer) == 2
        await asyncio.sleep(60)
        assert not memory.meta.sessions and memory.context.lease._holders == 0
        await closed(files, other)

    play(scene)


@pytest.mark.parametrize("deferred", [True, False])
def test_an_open_that_is_answered_while_the_session_of_others_ends_can_write(deferred: bool) -> None:
    """Its own session was ended as not needed, and its writes failed: the file was not open for writing."""

    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        answers, closes = asyncio.Event(), asyncio.Event()
        opening, closing, late = memory.meta._open, memory.meta._sync, asyncio.Event()

        async def open_(request: pb.OpenRequest) -> pb.OpenReply:
            reply = await opening(request)
            if not late.is_set():
                late.set()
                await answers.wait()
            return reply

        async def close(request: pb.CloseRequest) -> pb.InodeReply:
            if not closes.is_set():
                closes.set()
                await asyncio.sleep(1)
            return await closing(request)

        memory.meta._open, memory.meta._sync = open_, close  # type: ignore[method-assign]
        first = asyncio.ensure_future(files.open(inode, os.O_RDWR, ROOT))
        await late.wait()
        second, _ = await files.open(inode, os.O_RDWR, ROOT)
        if not deferred:
            await files.write(second, 0, b"c")
            await files.handle(second).file.flush()
        ending = files.release(second)
        ends = None if ending is None else asyncio.ensure_future(ending)
        await closes.wait()
        answers.set()
        number, _ = await first
        await files.write(number, 0, b"C")
        await files.handle(number).sync()
        if ends is not None:
            await ends
        await closed(files, number)
        await asyncio.sleep(2)
        assert await AsyncFileSystem(memory.context).read_file("/a") == b"Content"
        assert not memory.meta.sessions and not memory.context.lease._holders and files.get(inode) is None

    play(scene)
