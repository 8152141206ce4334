import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from threefs_client.async_filesystem import AsyncFileSystem

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.virtual_time import run_virtual
from threefs.background import cancel_and_wait
from threefs.errors import ConnectionLost, NoSpace, OutcomeUnknown
from threefs.wire import meta_pb2 as pb


def play(scene: Callable[[MemoryFiles, AsyncFileSystem], Awaitable[None]], **options: Any) -> MemoryFiles:
    files = MemoryFiles(**options)

    async def run() -> None:
        await scene(files, AsyncFileSystem(files.context))

    run_virtual(run())
    return files


@pytest.mark.parametrize("how", ["cancelled", "unknown", "not at all", "cut by another", "without its place"])
def test_an_append_that_is_tried_again_is_there_once(how: str) -> None:
    """A flush that failed was tried again with the next one, at another place: the bytes were there twice."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/log", b"zero,")
        file = await fs.open("/log", "ab")
        await file.write(b"one,")
        if how == "not at all":
            files.storage.before.append(lambda *_: NoSpace("full"))
            with pytest.raises(NoSpace):
                await file.flush()
        elif how == "without its place":  # which is taken: with another one there would be a gap of zeros
            reserve, placed = files.meta._reserve, asyncio.Event()

            async def late(request: pb.ReserveRequest) -> pb.ReserveReply:
                files.meta.answered[request.mutation.client, request.mutation.request] = await reserve(request)
                placed.set()
                await asyncio.Event().wait()
                raise AssertionError

            files.meta._reserve = late  # type: ignore[method-assign]
            flush = asyncio.create_task(file.flush())
            await placed.wait()
            await cancel_and_wait(flush)
            files.meta._reserve = reserve  # type: ignore[method-assign]
        elif how == "unknown":
            files.storage.after += [lambda *_: ConnectionLost("cut"), lambda *_: NoSpace("full")]
            with pytest.raises(OutcomeUnknown):
                await file.flush()
        else:
            files.storage.pause_s = lambda: 1.0
            flush = asyncio.create_task(file.flush())
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
        await file.write(b"two,")
        await file.close()
        whole = await fs.read_file("/log")
        expected = {"cut by another": b"other,one,two,"}
        assert whole == expected.get(how, b"zero,one,other,two,"), whole

    play(scene)
