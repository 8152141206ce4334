import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from threefs_client.async_filesystem import AsyncFileSystem

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.virtual_time import run_virtual
from threefs.background import cancel_and_wait
from threefs.errors import ConnectionLost, NoSpace, OutcomeUnknown, StaleFence
from threefs.wire import meta_pb2 as pb


def play(scene: Callable[[MemoryFiles, AsyncFileSystem], Awaitable[None]], **options: Any) -> MemoryFiles:
    files = MemoryFiles(**options)

    async def run() -> None:
        await scene(files, AsyncFileSystem(files.context))

    run_virtual(run())
    return files


#: More than is put together with other bytes.
LARGE = bytes(range(1, 251)) * 1000


@pytest.mark.parametrize("data", [b"one,", LARGE], ids=["small", "large"])
@pytest.mark.parametrize("how", ["cancelled", "unknown", "not at all", "cut by another", "without its place"])
def test_an_append_that_is_tried_again_is_there_once(how: str, data: bytes) -> None:
    """A flush that failed was tried again with the next one, at another place: the bytes were there twice. So was a
    large write, which is not put together with others."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/log", b"zero,")
        file = await fs.open("/log", "ab")

        async def attempt() -> None:
            if data == LARGE or not file.has_unsent_writes:
                await file.write(data)
            if data != LARGE:
                await file.flush()

        if how == "not at all":
            files.storage.before += [lambda *_: NoSpace("full")] * 5
            with pytest.raises(NoSpace):
                await attempt()
            files.storage.before.clear()
        elif how == "without its place":  # which is taken: with another one there would be a gap of zeros
            reserve, placed = files.meta._reserve, asyncio.Event()

            async def late(request: pb.ReserveRequest) -> pb.ReserveReply:
                files.meta.answered[request.mutation.client, request.mutation.request] = await reserve(request)
                placed.set()
                await asyncio.Event().wait()
                raise AssertionError

            files.meta._reserve = late  # type: ignore[method-assign]
            flush = asyncio.create_task(attempt())
            await placed.wait()
            await cancel_and_wait(flush)
            files.meta._reserve = reserve  # type: ignore[method-assign]
        elif how == "unknown":
            files.storage.after += [lambda *_: ConnectionLost("cut"), *[lambda *_: NoSpace("full")] * 5]
            with pytest.raises(OutcomeUnknown):
                await attempt()
            files.storage.after.clear()
        else:
            files.storage.pause_s = lambda: 1.0
            flush = asyncio.create_task(attempt())
            applied = files.storage.applied
            while files.storage.applied == applied:
                await asyncio.sleep(0.1)
            await cancel_and_wait(flush)
            files.storage.pause_s = None
        if how == "cut by another":
            await fs.truncate("/log", 0)
            await file.handle.refresh()
        other = await fs.open("/log", "ab")
        await other.write(b"other,")
        await other.close()
        await attempt()
        await file.write(b"two,")
        await file.close()
        whole = await fs.read_file("/log")
        expected = {"cut by another": b"other," + data + b"two,"}
        assert whole == expected.get(how, b"zero," + data + b"other,two,")
        assert not files.meta.files[b"log"].appends

    play(scene, write_buffer_bytes=64 << 10)


@pytest.mark.parametrize("then", ["other bytes", "a flush", "an end", "nothing to write"])
def test_a_large_append_that_is_not_repeated_ends_with_the_next_call(then: str) -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        file = await fs.open("/log", "a+b")
        files.storage.before += [lambda *_: NoSpace("full")] * 5
        with pytest.raises(NoSpace):
            await file.write(LARGE)
        files.storage.before.clear()
        inode = files.meta.files[b"log"]
        assert file.tell() == 0 and [one.end for one in inode.appends] == [len(LARGE)]
        if then == "other bytes":
            await file.write(b"x" * len(LARGE))
            await file.write(b"small")
        elif then == "nothing to write":
            assert await file.write(b"") == 0 and file.tell() == 0
        if then == "an end":
            await file.close()
        else:
            await file.flush()
        assert not inode.appends
        await file.close()
        rest = b"x" * len(LARGE) + b"small" if then == "other bytes" else b""
        assert (await fs.read_file("/log")).lstrip(b"\0") == rest

    play(scene, write_buffer_bytes=64 << 10)


def test_a_large_append_is_repeated_where_the_buffer_would_have_room_for_it() -> None:
    """The file has grown meanwhile, and the buffer ends with a chunk."""
    room = 64 << 10

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/log", b"0123456789")
        file, data = await fs.open("/log", "ab"), b"x" * (room - 5)
        files.storage.before += [lambda *_: NoSpace("full")] * 5
        with pytest.raises(NoSpace):
            await file.write(data)
        files.storage.before.clear()
        async with await fs.open("/log", "ab") as other:
            await other.write(b"o" * (room - 5))
        await file.handle.refresh()
        assert file.length == 2 * room
        await file.write(data)
        await file.close()
        assert await fs.read_file("/log") == b"0123456789" + data + b"o" * (room - 5)

    play(scene, write_buffer_bytes=room)


def test_a_report_during_an_append_after_a_truncate_does_not_end_it() -> None:
    """The handle has appended further than the file is long now."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        file = await fs.open("/log", "ab")
        handle, inode = file.handle, files.meta.files[b"log"]
        await handle.append(memoryview(b"x" * 100))
        await fs.truncate("/log", 0)
        await handle.append(memoryview(b"one,"))
        files.storage.pause_s = lambda: 1.0
        append = asyncio.create_task(handle.append(memoryview(b"two,")))
        while not any(one.offset for one in inode.appends):
            await asyncio.sleep(0.1)
        await handle.sync()
        assert [(one.offset, one.end) for one in inode.appends] == [(4, 8)]
        await append
        await handle.sync()
        assert not inode.appends
        await file.close()

    play(scene)


def test_an_append_that_was_cut_off_is_not_sent_under_the_fence_that_another_write_has_read() -> None:
    """Between the answer by which the place still stood, and the sending, the file is truncated."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/log", b"zero,")
        file = await fs.open("/log", "ab")
        handle, inode = file.handle, files.meta.files[b"log"]
        renew, renewals = files.context.lease.renew_now, 0

        def lock_lost(*_: object) -> StaleFence:
            inode.fence += 1
            return StaleFence("behind the fence")

        async def renew_slowly() -> None:
            nonlocal renewals
            renewals += 1
            await renew()
            if renewals == 2:  # the append has the fence that it follows
                await fs.truncate("/log", 0)
                await handle.refresh_fence()

        files.storage.before.append(lock_lost)
        files.context.lease.renew_now = renew_slowly  # type: ignore[method-assign]
        await handle.append(memoryview(b"one,"))
        await file.close()
        assert renewals > 2 and await fs.read_file("/log") == b"one,"

    play(scene)


@pytest.mark.parametrize("how", ["file object", "handle"])
@pytest.mark.parametrize("when", ["over", "goes on", "behind it"])
def test_an_append_whose_place_was_cut_off_gets_another_one(how: str, when: str) -> None:
    """It was written at its place of before the truncate: over what others had appended since, or behind zeros."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/log", b"zero,")
        file = await fs.open("/log", "ab")
        inode = files.meta.files[b"log"]

        def truncate(*_: object) -> StaleFence:
            inode.fence += 1
            if when == "goes on":
                inode.cutting = 1
                asyncio.get_running_loop().call_later(1, end)
            elif when == "over":
                asyncio.get_running_loop().call_soon(end)
            else:
                inode.cutting = 100
            return StaleFence("behind the fence")

        def end() -> None:
            inode.length = inode.append_end = inode.cutting = 0
            inode.truncate_version += 1
            del inode.appends[:]
            files.storage.data.clear()

        files.storage.before.append(truncate)
        if how == "handle":
            await file.handle.append(memoryview(b"one,"))
        else:
            await file.write(b"one,")
        await file.close()
        assert await fs.read_file("/log") == (b"zero,one," if when == "behind it" else b"one,")
        assert not inode.appends

    play(scene)
