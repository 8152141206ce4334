"""Copies trees between the local disk and the cluster: many small files at once, large ones in pieces at once."""

import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any

from threefs_client import AsyncFile, AsyncFileSystem

from threefs.errors import InvalidArgument
from threefs_cli.flow import run_all
from threefs_cli.local_tree import LocalFile, LocalTree
from threefs_cli.remote_tree import RemoteFile, RemoteTree

PIECE_BYTES = 8 << 20
FILES_AT_ONCE = 64
LARGE_AT_ONCE = 4
PIECES_AT_ONCE = 2  # of each of them
BATCHES_AT_ONCE = 4
SMALL_BYTES = 1 << 20  # files up to this go in one piece, and are fetched many in one batch
BATCH_FILES = 256

#: called with (files finished, bytes moved) since the last call
Moved = Callable[[int, int], None]
Job = Coroutine[Any, Any, None]


async def put(fs: AsyncFileSystem, tree: LocalTree, moved: Moved) -> None:
    """Copy a local tree in. Existing files are replaced."""
    for level in tree.levels:
        await run_all((_make(fs, path) for path in level), FILES_AT_ONCE)
    small = [file for file in tree.files if file.length_bytes <= SMALL_BYTES]
    large = [file for file in tree.files if file.length_bytes > SMALL_BYTES]
    await run_all((_put_small(fs, file, moved) for file in small), FILES_AT_ONCE)
    await run_all((_put_large(fs, file, moved) for file in large), LARGE_AT_ONCE)
    await run_all((_link(fs, *link, moved) for link in tree.symlinks), FILES_AT_ONCE)


async def get(fs: AsyncFileSystem, tree: RemoteTree, moved: Moved) -> None:
    """Copy a tree of the cluster out. Existing files are replaced."""
    for path in tree.directories:
        os.makedirs(path, exist_ok=True)
    small = [file for file in tree.files if file.length_bytes <= SMALL_BYTES]
    large = [file for file in tree.files if file.length_bytes > SMALL_BYTES]
    await run_all((_get_batch(fs, batch, moved) for batch in _batches(small)), BATCHES_AT_ONCE)
    await run_all((_get_large(fs, file, moved) for file in large), LARGE_AT_ONCE)
    for target, path in tree.symlinks:
        with suppress(FileNotFoundError):
            os.unlink(path)
        os.symlink(target, path)
        moved(1, 0)


async def _make(fs: AsyncFileSystem, path: str) -> None:
    await fs.mkdir(path, parents=True)


async def _link(fs: AsyncFileSystem, target: str, path: str, moved: Moved) -> None:
    if (await fs.stat_many([path], follow=False))[0] is not None:
        await fs.unlink(path)
    await fs.symlink(target, path)
    moved(1, 0)


async def _put_small(fs: AsyncFileSystem, file: LocalFile, moved: Moved) -> None:
    with open(file.source, "rb", buffering=0) as local:
        content = local.read()
    async with await fs.open(file.destination, "wb", permissions=file.mode) as remote:
        await remote.write(content)
    moved(1, len(content))


async def _put_large(fs: AsyncFileSystem, file: LocalFile, moved: Moved) -> None:
    with open(file.source, "rb", buffering=0) as local:
        async with await fs.open(file.destination, "wb", permissions=file.mode) as remote:
            jobs = (
                _put_piece(fs, remote, local.fileno(), offset, size, moved)
                for offset, size in _pieces(file.length_bytes)
            )
            await run_all(jobs, PIECES_AT_ONCE)
    moved(1, 0)


async def _put_piece(fs: AsyncFileSystem, remote: AsyncFile, local: int, offset: int, size: int, moved: Moved) -> None:
    piece = os.pread(local, size, offset)
    await fs.write_batch([(remote, offset, piece)])
    moved(0, len(piece))


def _batches(files: list[RemoteFile]) -> Iterator[list[RemoteFile]]:
    """Small files that are fetched together."""
    batch: list[RemoteFile] = []
    size = 0
    for file in files:
        if batch and (len(batch) == BATCH_FILES or size + file.length_bytes > PIECE_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.length_bytes
    if batch:
        yield batch


async def _get_batch(fs: AsyncFileSystem, batch: list[RemoteFile], moved: Moved) -> None:
    views = await fs.read_batch([(file.source, 0, file.length_bytes) for file in batch])
    for file, view in zip(batch, views, strict=True):
        with open(file.destination, "wb", buffering=0) as local:
            local.write(view)
            os.fchmod(local.fileno(), file.mode)
        moved(1, len(view))


async def _get_large(fs: AsyncFileSystem, file: RemoteFile, moved: Moved) -> None:
    async with await fs.open(file.source) as remote:
        with open(file.destination, "wb", buffering=0) as local:
            jobs = (
                _get_piece(fs, remote, local.fileno(), offset, size, moved)
                for offset, size in _pieces(file.length_bytes)
            )
            await run_all(jobs, PIECES_AT_ONCE)
            os.fchmod(local.fileno(), file.mode)
    moved(1, 0)


async def _get_piece(fs: AsyncFileSystem, remote: AsyncFile, local: int, offset: int, size: int, moved: Moved) -> None:
    (view,) = await fs.read_batch([(remote, offset, size)])
    done = 0
    while done < len(view):
        done += os.pwrite(local, view[done:], offset + done)
    moved(0, len(view))


def _pieces(length_bytes: int) -> Iterator[tuple[int, int]]:
    for offset in range(0, length_bytes, PIECE_BYTES):
        yield offset, min(PIECE_BYTES, length_bytes - offset)


def destinations(sources: tuple[str, ...], destination: str, *, into: bool) -> list[tuple[str, str]]:
    """(source, where it goes), as `cp` does it: into an existing directory (`into`), else under the new name.

    Raises InvalidArgument for several sources and no directory to put them into.
    """
    if not into and len(sources) > 1:
        raise InvalidArgument(f"{destination} is not a directory, and there are {len(sources)} things to copy")
    if not into:
        return [(sources[0], destination)]
    return [(source, f"{destination.rstrip('/')}/{_last_name(source)}") for source in sources]


def _last_name(source: str) -> str:
    name = source.rstrip("/").rpartition("/")[2]
    if name in ("", ".", ".."):
        raise InvalidArgument(f"{source} has no name that the copy could have; name the destination in full")
    return name
