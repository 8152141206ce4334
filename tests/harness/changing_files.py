"""Files of a MemoryFiles that others change while a program reads them or looks for their holes."""

import asyncio
from collections.abc import Callable
from typing import Any

from threefs_client.async_filesystem import AsyncFileSystem

from tests.harness.memory_cluster import MemoryFiles

_MOST_CALLS = 100  # of a program that asks with pauses, or gives up


def keep_changing(files: MemoryFiles, changing: bytes, calls: int = 1 << 30) -> None:
    """Another program changes the file after each call at a meta service, for so many calls from now on.

    The test fails if calls are repeated without end.
    """
    answer, first = files.meta.answer, len(files.peers.meta_calls)

    async def busy(name: str, request: Any) -> Any:
        reply, made = await answer(name, request), len(files.peers.meta_calls) - first
        files.meta.files[changing].change += made < calls
        assert made < _MOST_CALLS
        return reply

    files.meta.answer = busy  # type: ignore[method-assign]


def answer_late(files: MemoryFiles, delay_s: float) -> None:
    """Meta services do what is asked for at once, and answer later."""
    answer = files.meta.answer

    async def slow(name: str, request: Any) -> Any:
        reply = await answer(name, request)
        await asyncio.sleep(delay_s)
        return reply

    files.meta.answer = slow  # type: ignore[method-assign]


def rewrite_while_listed(files: MemoryFiles, fs: AsyncFileSystem, path: str, content: bytes) -> Callable[[], bool]:
    """The next time that chunks of a file are listed, this one has just been emptied; then it is written anew.

    Returns:
        Whether that has happened.
    """
    call, written = files.storage.call, False

    async def meanwhile(address: str, method: Any, request: Any, **more: Any) -> Any:
        nonlocal written
        begun = method.name == "ListChunks" and not written
        if begun:
            written = True
            await fs.truncate(path, 0)
        reply = await call(address, method, request, **more)
        if begun:
            await fs.write_file(path, content)
        return reply

    files.storage.call = meanwhile  # type: ignore[method-assign]
    return lambda: written
