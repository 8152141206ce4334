"""Precreated files of a client: how many there are, for whom, and what becomes of them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from threefs_client.context import ClientContext
from threefs_client.metadata.precreated import IDLE_S, MAX_FILES, Precreated

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.virtual_time import run_virtual
from threefs.background import cancel_and_wait
from threefs.errors import AccessDenied, AlreadyExists, SessionLost
from threefs.wire import meta_pb2 as pb


def play(scene: Callable[[MemoryFiles, ClientContext], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        files = MemoryFiles(**options)
        await scene(files, files.context)

    run_virtual(run())


def calls(files: MemoryFiles) -> list[int]:
    """How many files were asked for, by call."""
    return [request.count for _, name, request in files.peers.meta_calls if name == "Precreate"]


async def take(context: ClientContext, path: bytes = b"/a", wanted: int = 1) -> Precreated:
    return await context.precreated.take(path, None, wanted)


def test_they_are_made_twice_as_many_each_time() -> None:
    async def scene(files: MemoryFiles, context: ClientContext) -> None:
        taken = [await take(context) for _ in range(200)]
        assert calls(files) == [1, 2, 4, 8, 16, 32, MAX_FILES, MAX_FILES, MAX_FILES]
        assert len({file.inode.inode for file in taken}) == 200, "nobody gets one twice"

    play(scene)


def test_waiting_calls_and_calls_for_many_get_theirs_in_one_call() -> None:
    async def scene(files: MemoryFiles, context: ClientContext) -> None:
        await asyncio.gather(*(take(context) for _ in range(16)))
        assert len(calls(files)) <= 3 and len(context.precreated) < 16
        before = len(calls(files))
        for left in range(200, 0, -1):
            await take(context, wanted=left)
        assert len(calls(files)) - before <= 4

    play(scene)


def test_each_keeps_the_lease_until_it_is_given_back() -> None:
    async def scene(files: MemoryFiles, context: ClientContext) -> None:
        first = await take(context, wanted=4)
        assert context.lease._holders == 4 and len(files.meta.nameless) == 4
        await asyncio.sleep(3 * IDLE_S)
        assert context.lease._holders == 1 and len(files.meta.nameless) == 1 and not len(context.precreated)
        assert (first.inode.inode, first.session) in files.meta.nameless, "whoever has taken it is not done yet"
        request = pb.CloseRequest(inode=first.inode.inode, session=first.session)
        context.precreated.give_up(first, request, None, AlreadyExists())
        await asyncio.sleep(3)
        assert not context.lease._holders and not files.meta.nameless
        await take(context)
        assert calls(files) == [4, 1], "after a pause it begins with few"

    play(scene)


def test_at_the_end_they_are_given_back() -> None:
    async def scene(files: MemoryFiles, context: ClientContext) -> None:
        await take(context, wanted=10)
        await context.precreated.close()
        assert len(files.meta.nameless) == 1 and context.lease._holders == 1

    play(scene)


def test_with_the_lease_they_are_lost() -> None:
    async def scene(files: MemoryFiles, context: ClientContext) -> None:
        mine = await take(context, wanted=4)
        files.meta.lease += 1
        await context.lease.renew_now()
        assert not len(context.precreated) and context.lease._holders == 1
        context.precreated.give_up(mine, pb.CloseRequest(session=mine.session), None, SessionLost())
        assert context.lease._holders == 0 and not len(context.session_closer), "it has ended already"
        assert (await take(context)).lease == files.meta.lease

    play(scene)


def test_files_of_a_repeated_answer_whose_lease_has_ended_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer was lost. The lease ended before the call was repeated, and got the same answer."""

    async def scene(files: MemoryFiles, context: ClientContext) -> None:
        answer = files.meta._precreate

        async def answer_late(request: pb.PrecreateRequest) -> pb.PrecreateReply:
            reply = await answer(request)
            monkeypatch.setattr(files.meta, "_precreate", answer)
            files.meta.lease += 1
            await context.lease.renew_now()
            return reply

        await take(context)
        monkeypatch.setattr(files.meta, "_precreate", answer_late)
        assert (await take(context, wanted=4)).lease == files.meta.lease == context.lease.number
        assert context.lease._holders == 5, "those of the lost answer hold nothing"

    play(scene)


def test_a_cancelled_call_leaves_its_slots_to_the_next() -> None:
    async def scene(files: MemoryFiles, context: ClientContext) -> None:
        waits = asyncio.ensure_future(take(context))
        await asyncio.sleep(0)
        await cancel_and_wait(waits)
        await asyncio.sleep(0.1)
        assert len(context.precreated) == len(files.meta.nameless) == context.lease._holders == 1

    play(scene)


def test_a_refusal_leaves_nothing() -> None:
    async def scene(files: MemoryFiles, context: ClientContext) -> None:
        files.peers.meta_faults.append((False, AccessDenied("no")))
        with pytest.raises(AccessDenied):
            await take(context)
        assert not context.lease._holders and not len(context.precreated)
        await take(context)

    play(scene)


def test_a_directory_gets_files_of_its_layout_once_that_is_known() -> None:
    async def scene(files: MemoryFiles, context: ClientContext) -> None:
        assert (await take(context, b"/d/a", 3)).inode.layout.chunk_bytes == 64 << 10
        files.meta.chunk_bytes = 128 << 10  # what a call from here on gets
        assert (await take(context, b"/e/a")).inode.layout.chunk_bytes == 64 << 10, "a guess"
        await context.precreated.learn(b"/e/a", None)
        assert (await take(context, b"/e/b")).inode.layout.chunk_bytes == 128 << 10
        assert (await take(context, b"/d/b")).inode.layout.chunk_bytes == 64 << 10

    play(scene)
