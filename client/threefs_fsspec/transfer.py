"""Copies a file between the local disk and the cluster, in pieces."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from typing import Any, TypeVar, TypeVarTuple

import aiofiles
from threefs_client import AsyncFile, AsyncFileSystem

from threefs.env.disk import run_to_completion
from threefs.env.worker_threads import run_in_thread
from threefs_fsspec import replacement
from threefs_fsspec.local_file import new_file

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

PIECE_BYTES = 4 << 20
#: A file of up to that size is written whole, in one call.
WHOLE_BYTES = 1 << 20

#: Called with the bytes that were moved since the last call.
Progress = Callable[[int], Any]


async def put(
    core: AsyncFileSystem, local: str, path: str, progress: Progress, *, exclusive: bool, parents: bool
) -> None:
    """Copy a local file in. It appears whole, and replaces an existing one unless it is to be `exclusive` (then
    AlreadyExists)."""
    async with aiofiles.open(local, "rb", buffering=0) as source:
        if os.fstat(source.fileno()).st_size <= WHOLE_BYTES:
            data = await source.readall()
            await write_whole(core, path, data, exclusive=exclusive, parents=parents)
            progress(len(data))
            return
        new = await replacement.begin(core, path, exclusive=exclusive, parents=parents)
        try:
            await _put_pieces(source, new.file, progress)
        except BaseException:
            await new.discard()
            raise
        await new.publish()


async def put_into(local: str, file: AsyncFile, progress: Progress) -> None:
    """Copy a local file into an open one."""
    async with aiofiles.open(local, "rb", buffering=0) as source:
        await _put_pieces(source, file, progress)


async def _put_pieces(source: Any, file: AsyncFile, progress: Progress) -> None:
    while piece := await source.read(PIECE_BYTES):
        await file.write(piece)
        progress(len(piece))


async def copy_into(core: AsyncFileSystem, path: str, file: AsyncFile) -> None:
    """Copy a file of the cluster into an open one. Holes stay holes."""
    async with await core.open(path) as source:
        await core.copy_range(source, 0, file, 0, source.length)


async def write_whole(
    core: AsyncFileSystem, path: str, data: Any, *, permissions: int | None = None, exclusive: bool, parents: bool
) -> None:
    """Write a file of which all bytes are known: it appears whole. An existing one is replaced, and its permissions
    are kept, unless others are given. Raises AlreadyExists if it is to be `exclusive`."""
    mode = await replacement.permissions_for(core, path, permissions, exclusive=exclusive)
    if exclusive:
        await core.write_file(path, data, permissions=mode, parents=parents, exclusive=True)
    else:
        await core.write_file(path, data, permissions=mode, parents=parents, replace=True)


async def get(core: AsyncFileSystem, path: str, local: str, set_size: Progress, progress: Progress) -> None:
    """Copy a file out to the local disk. The local file is replaced when the new one is whole, and stays as it is after
    an error."""
    async with await core.open(path) as source, _in_threads(new_file(local)) as target:

        async def write(piece: bytes) -> None:
            await _to_its_end(_write_all, target, piece)

        await _get(source, write, set_size, progress)


@asynccontextmanager
async def _in_threads(new: AbstractContextManager[int]) -> AsyncIterator[int]:
    target = await _to_its_end(new.__enter__)
    try:
        yield target
    except BaseException as error:
        await _to_its_end(new.__exit__, type(error), error, error.__traceback__)
        raise
    await _to_its_end(new.__exit__, None, None, None)


def _write_all(file: int, piece: bytes) -> None:
    rest = memoryview(piece)
    while rest:
        rest = rest[os.write(file, rest) :]


async def _to_its_end(function: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """Call a function in a thread. A cancelled caller waits for its end, so that nothing uses the file afterwards."""
    return await run_to_completion(run_in_thread(function, *arguments))


async def get_into(core: AsyncFileSystem, path: str, target: Any, set_size: Progress, progress: Progress) -> None:
    """Copy a file out into a binary file object."""
    async with await core.open(path) as source:
        await _get(source, partial(run_in_thread, target.write), set_size, progress)


async def _get(
    source: AsyncFile, write: Callable[[bytes], Awaitable[Any]], set_size: Progress, progress: Progress
) -> None:
    set_size(source.length)
    while piece := await source.read(PIECE_BYTES):
        await write(piece)
        progress(len(piece))
