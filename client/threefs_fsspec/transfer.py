"""Copies a file between the local disk and the cluster, in pieces."""

import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import aiofiles
from threefs_client import AsyncFile, AsyncFileSystem

from threefs.env.worker_threads import run_in_thread
from threefs_fsspec import replacement

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
    """Copy a file out to the local disk. What cannot be opened in the cluster leaves the local file as it is."""
    async with await core.open(path) as source, aiofiles.open(local, "wb") as target:
        await _get(source, target.write, set_size, progress)


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
