"""Write sessions whose end was not confirmed."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_client.metadata import session_closer
from threefs_client.metadata.session_closer import SessionCloser

from tests.harness.changing_files import answer_late
from tests.harness.memory_cluster import MemoryFiles
from tests.harness.virtual_time import run_virtual
from threefs.env.clock import CLOCK
from threefs.errors import (
    ConnectionLost,
    DeadlineExceeded,
    Internal,
    OutcomeUnknown,
    SessionLost,
    ThreefsError,
    Unavailable,
)
from threefs.wire import meta_pb2 as pb


def play(scene: Callable[[MemoryFiles, AsyncFileSystem], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        files = MemoryFiles(**options)
        await scene(files, AsyncFileSystem(files.context))

    run_virtual(run())


@pytest.mark.parametrize("after", [False, True])
def test_it_ends_with_the_first_answer(after: bool) -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        file = await fs.open("/a", "wb")
        await file.write(b"content")
        await file.flush()
        files.peers.meta_faults += [(after, ConnectionLost("gone"))] * 10_000
        with pytest.raises(ThreefsError):
            await file.close()
        assert len(files.context.session_closer) == 1 and files.context.lease._holders == 1, "the lease is kept for it"
        await asyncio.sleep(60)
        files.peers.meta_faults.clear()
        assert len(files.context.session_closer) == (not after), "whoever is told that it has ended asks no more"
        await asyncio.sleep(60)
        assert not files.meta.sessions and not len(files.context.session_closer) and not files.context.lease._holders

    play(scene, timeout_s=0.5)


def test_what_has_ended_is_not_asked_for_again() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        file = await fs.open("/a", "wb")
        files.peers.meta_faults.append((False, SessionLost("it has ended")))
        with pytest.raises(SessionLost):
            await file.close()
        assert not len(files.context.session_closer) and not files.context.lease._holders

    play(scene)


def test_with_the_lease_they_have_ended() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        file = await fs.open("/a", "wb")
        files.peers.meta_faults.append((False, Internal("broken")))
        files.context.session_closer.close_later(file.handle.close_request(), None, 1, Unavailable("gone"))
        files.meta.lease += 1
        files.context.lease.granted(files.meta.lease)
        calls = len(files.peers.meta_calls)
        await asyncio.sleep(2)
        assert not len(files.context.session_closer) and not files.context.lease._holders
        assert not [name for _, name, _ in files.peers.meta_calls[calls:] if name == "Close"]

    play(scene)


class StuckChain:
    """The calls for files from number `first` on, of which a chain does not answer, take all their time."""

    def __init__(self, files: MemoryFiles, first: int) -> None:
        self.closed: set[int] = set()
        self.answers = False
        self._first = first
        self._lease = files.context.lease
        self.closer = SessionCloser(self._send, self._lease, clock=CLOCK)

    async def close_later(self, inode: int) -> None:
        await self._lease.acquire()
        self.closer.close_later(pb.CloseRequest(inode=inode, session=b"s" * 16), None, 1, Unavailable("gone"))

    async def _send(self, request: pb.CloseRequest, caller: pb.Caller | None, timeout_s: float) -> pb.InodeReply:
        if request.inode >= self._first and not self.answers:
            await asyncio.sleep(timeout_s)
            raise DeadlineExceeded("no answer of a chain")
        self.closed.add(request.inode)
        return pb.InodeReply()


def test_those_that_cannot_be_closed_keep_no_other_open() -> None:
    """Each round ended with the first of them, so that the others waited for one round of each."""

    async def scene(files: MemoryFiles, _: AsyncFileSystem) -> None:
        chain = StuckChain(files, 10)
        for inode in (*range(10, 110), 1):
            await chain.close_later(inode)
        await asyncio.sleep(300)
        assert chain.closed == {1} and len(chain.closer) == 100
        await chain.close_later(2)
        await asyncio.sleep(1)
        assert chain.closed == {1, 2}, "a new one does not wait behind those that have failed"
        chain.answers = True
        await asyncio.sleep(60)
        assert not len(chain.closer) and not files.context.lease._holders

    play(scene)


def test_at_the_end_those_that_cannot_be_closed_leave_no_other_open() -> None:
    """All behind the first of them were left to the lease."""

    async def scene(files: MemoryFiles, _: AsyncFileSystem) -> None:
        chain = StuckChain(files, 10)
        for inode in range(10, 110):
            await chain.close_later(inode)
        await asyncio.sleep(300)
        for inode in range(10):
            await chain.close_later(inode)
        await chain.closer.close()
        assert chain.closed == {*range(10)}
        assert not len(chain.closer) and not files.context.lease._holders

    play(scene)


def test_they_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_closer, "MAX_UNFINISHED", 3)

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        for number in range(5):
            await files.context.lease.acquire()
            request = pb.CloseRequest(inode=2, session=bytes([number]) * 16)
            files.context.session_closer.close_later(request, None, 1, Unavailable("gone"))
        assert len(files.context.session_closer) == 3 == files.context.lease._holders
        files.peers.meta_faults += [(False, Unavailable("gone"))] * 10_000
        await files.context.session_closer.close()
        assert not len(files.context.session_closer) and not files.context.lease._holders

    play(scene)


@pytest.mark.parametrize("first", [True, False])
def test_a_session_under_a_lease_that_its_client_has_not_heard_of_is_ended(first: bool) -> None:
    """The next open was the first to name the lease, so the session counted as one of the lease before."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        held = [] if first else [await fs.open("/held", "wb")]
        files.meta.lease += 1
        answer_late(files, 0.1)
        opening = asyncio.ensure_future(fs.create_unnamed("/"))
        await asyncio.sleep(0.05)
        opening.cancel()
        await asyncio.sleep(0.2)
        assert len(files.context.session_closer) == 1
        held.append(await fs.open("/next", "wb"))
        await asyncio.sleep(5)
        assert not files.meta.nameless and files.context.lease._holders == len(held)

    play(scene)


@pytest.mark.parametrize("how", ["cancelled", "unknown", "nothing came of it"])
@pytest.mark.parametrize("mode", ["wb", "r+b"])
def test_the_write_session_of_an_open_that_was_given_up_is_ended(mode: str, how: str) -> None:
    """It lived as long as the process, and for as long a file that was removed kept its room."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/a", b"abc")
        before = set(files.meta.sessions)
        name = "_create" if mode == "wb" else "_open"
        begin, begun = getattr(files.meta, name), asyncio.Event()

        async def late(request: Any) -> Any:
            if how != "nothing came of it":
                await begin(request)
            begun.set()
            if how == "unknown":
                raise ConnectionLost("cut")
            await asyncio.Event().wait()

        setattr(files.meta, name, late)
        opening = asyncio.create_task(fs.open("/a", mode))
        await begun.wait()
        if how != "unknown":
            opening.cancel()
        with pytest.raises((asyncio.CancelledError, OutcomeUnknown)):
            await opening
        setattr(files.meta, name, begin)
        await asyncio.sleep(5)
        assert files.meta.sessions == before and len(files.context.session_closer) == 0
        assert files.context.lease._holders == 0

    play(scene, timeout_s=1.0)
