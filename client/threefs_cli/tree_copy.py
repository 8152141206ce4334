"""Copies trees between the local disk and the cluster: many small files at a time, large ones in parallel pieces.

The event loop never waits for the local disk: aiofiles uses it in threads.
"""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import replace
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, BinaryIO, TypeVar

import aiofiles
from aiofiles.os import wrap
from threefs_client import AsyncFile, AsyncFileSystem
from threefs_client.data.hole_retry import HoleRetry
from threefs_client.data.sparse import data_ranges

from threefs.env import standard_streams
from threefs.env.disk import run_to_completion
from threefs.env.random import RANDOM
from threefs.errors import AlreadyExists, InvalidArgument, LimitExceeded, NotADirectory, NotFound, ThreefsError
from threefs_cli import special_file
from threefs_cli.local_tree import LocalFile, LocalTree, permissions
from threefs_cli.remote_tree import RemoteFile, RemoteTree
from threefs_cli.safe_open import open_file
from threefs_cli.safe_write import OWNER_ACCESS, SafeWriter

PIECE_BYTES = 8 << 20
FILES_AT_ONCE = 64
LARGE_AT_ONCE = 4
PIECES_AT_ONCE = 2  # of each of them
BATCHES_AT_ONCE = 4
SMALL_BYTES = 1 << 20  # files up to this go in one piece, and are fetched many in one batch
BATCH_FILES = 256
_OPEN_ATTEMPTS = 100  # of a file that is replaced while it is opened
_LIST_ATTEMPTS = 5  # of the holes of a file that is being changed
_NEW_DIRECTORY = 0o755  # of one that is a copy of none

#: called with (files finished, bytes moved) since the last call
CopyProgress = Callable[[int, int], None]

Small = TypeVar("Small", LocalFile, RemoteFile)
T = TypeVar("T")

_make_directories = wrap(os.makedirs)


async def put(fs: AsyncFileSystem, tree: LocalTree, progress: CopyProgress) -> None:
    """Copy a local tree in. Existing files are replaced, each in one step when the new one is whole."""
    unfinished: list[str] = []
    for number, level in enumerate(tree.levels):
        jobs = (_make_directory(fs, path, tree.modes.get(path), unfinished, allow_symlink=not number) for path in level)
        await gather_bounded(jobs, FILES_AT_ONCE)
    small = [file for file in tree.files if file.length_bytes <= SMALL_BYTES]
    large = [file for file in tree.files if file.length_bytes > SMALL_BYTES]
    for _, alike in groupby(sorted(small, key=attrgetter("mode")), attrgetter("mode")):
        await gather_bounded((_put_batch(fs, batch, progress) for batch in _batches(alike)), BATCHES_AT_ONCE)
    await gather_bounded((_put_large(fs, file, progress) for file in large), LARGE_AT_ONCE)
    await gather_bounded((_put_symlink(fs, *link, progress) for link in tree.symlinks), FILES_AT_ONCE)
    for path in reversed(unfinished):  # those below first: they cannot be reached any more afterwards
        await fs.chmod(path, tree.modes[path], follow=False)


async def put_stream(fs: AsyncFileSystem, source: BinaryIO, destination: str) -> int:
    """Copy a stream to its end into a file, which then replaces an existing one; the number of bytes."""
    length, mode = 0, ~_umask() & 0o666
    async with _new_file(fs, destination, mode) as remote:
        async for piece in standard_streams.pieces(source):
            await remote.write(piece)
            length += len(piece)
    return length


async def get(fs: AsyncFileSystem, tree: RemoteTree, progress: CopyProgress, *, named_in_full: bool = False) -> None:
    """Copy a tree of the cluster out. Each existing file is replaced in one step, when the new one is whole.

    A device or pipe as destination is written to, if the user has `named_in_full`.
    """
    if named_in_full and not tree.directories:
        (file,) = tree.files
        if await wrap(special_file.is_special)(file.destination):
            await _get_to_special(fs, file, progress)
            return
    writer = SafeWriter(tree.base)
    if tree.directories and tree.base:
        await _make_directories(tree.base, exist_ok=True)
    make_directory, make_symlink = wrap(writer.make_directory), wrap(writer.make_symlink)
    made = [path for path in tree.directories if await make_directory(path, tree.modes[path])]
    small = [file for file in tree.files if file.length_bytes <= SMALL_BYTES]
    large = [file for file in tree.files if file.length_bytes > SMALL_BYTES]
    await gather_bounded((_get_batch(fs, writer, batch, progress) for batch in _batches(small)), BATCHES_AT_ONCE)
    await gather_bounded((_get_large(fs, writer, file, progress) for file in large), LARGE_AT_ONCE)
    for target, path in tree.symlinks:
        await make_symlink(target, path)
        progress(1, 0)
    finish_directory = wrap(writer.finish_directory)
    for path in reversed(made):  # those below first: they cannot be reached any more afterwards
        if ~tree.modes[path] & OWNER_ACCESS:
            await finish_directory(path, tree.modes[path])


async def _make_directory(
    fs: AsyncFileSystem, path: str, mode: int | None, unfinished: list[str], *, allow_symlink: bool
) -> None:
    """Make a directory, or accept an existing one as it is. Only the top, which the user has named, may be a symbolic
    link to one.

    A new one is added to `unfinished` if `mode` keeps its owner from filling it: it gets this mode in the end.
    """
    above = path.rstrip("/").rpartition("/")[0]
    if allow_symlink and above:
        await fs.mkdir(above, parents=True)
    try:
        await fs.mkdir(path, mode=_NEW_DIRECTORY if mode is None else mode | OWNER_ACCESS)
    except AlreadyExists:
        await fs.mkdir(path, parents=True)  # fails for what is no directory
        if not allow_symlink and not (await fs.stat(path, follow=False)).is_directory:
            raise NotADirectory(
                f"{path} is a symbolic link, and nothing is written through it; remove it first"
            ) from None
    else:
        if mode is not None and ~mode & OWNER_ACCESS:
            unfinished.append(path)


@asynccontextmanager
async def _replace_atomically(fs: AsyncFileSystem, path: str) -> AsyncIterator[str]:
    """A temporary name beside `path`, renamed to `path` at the end of the block; removed if the block fails."""
    parent, _, _ = path.rpartition("/")
    temporary = f"{parent}/.put-{RANDOM.token(8).hex()}"
    try:
        yield temporary
        await fs.rename(temporary, path)
    except BaseException as error:
        with suppress(ThreefsError):
            await fs.unlink(temporary)
        name = temporary.rpartition("/")[2]
        if isinstance(error, ThreefsError) and name in error.message:  # the user knows only the final name
            hint = _missing_parent_hint(path) if isinstance(error, NotFound) else ""
            raise type(error)(error.message.replace(temporary, path).replace(name, path) + hint) from None
        raise


@asynccontextmanager
async def _new_file(fs: AsyncFileSystem, path: str, mode: int) -> AsyncIterator[AsyncFile]:
    """A file that takes the name `path` at the end of the block, in one step.

    It has no name before, so a block that fails leaves nothing, in no trash either.
    """
    async with _replace_atomically(fs, path) as temporary, await _create_unnamed(fs, path, mode) as file:
        file.name = file.handle.name = path
        yield file
        await fs.link_file(file, temporary)


async def _create_unnamed(fs: AsyncFileSystem, path: str, mode: int) -> AsyncFile:
    """A file in the directory of `path`."""
    try:
        return await fs.create_unnamed(path.rpartition("/")[0] or "/", permissions=mode)
    except NotFound:
        raise NotFound(f"{path}: no such file or directory{_missing_parent_hint(path)}") from None


def _missing_parent_hint(path: str) -> str:
    parent = path.rpartition("/")[0]
    return f"; `threefs mkdir -p {parent}` makes its directory" if parent else ""


async def _put_symlink(fs: AsyncFileSystem, target: str, path: str, progress: CopyProgress) -> None:
    async with _replace_atomically(fs, path) as temporary:
        await fs.symlink(target, temporary)
    progress(1, 0)


async def _put_batch(fs: AsyncFileSystem, files: Sequence[LocalFile], progress: CopyProgress) -> None:
    """Copy small files of one mode."""
    found = await wrap(_read_files)(files)
    whole = [(file, content) for file, content in found if content is not None]
    pairs = [(file.destination, content) for file, content in whole]
    errors = await fs.write_many(pairs, permissions=files[0].mode, replace=True)
    for (file, content), error in zip(whole, errors, strict=True):
        if isinstance(error, NotFound):
            raise NotFound(error.message + _missing_parent_hint(file.destination))
        if error is not None:
            raise error
        progress(1, len(content))
    for file in (file for file, content in found if content is None):
        await _put_large(fs, file, progress)


def _read_files(files: Sequence[LocalFile]) -> list[tuple[LocalFile, bytes | None]]:
    """The content of each file; None if it has other permissions by now, because it was replaced."""
    found: list[tuple[LocalFile, bytes | None]] = []
    for file in files:
        with open(open_file(file.top, file.source), "rb", buffering=0) as local:
            same = permissions(os.fstat(local.fileno())) == file.mode
            found.append((file, local.read() if same else None))
    return found


async def _put_large(fs: AsyncFileSystem, file: LocalFile, progress: CopyProgress) -> None:
    async with _open_local(file) as local:
        opened = os.fstat(local.fileno())  # perhaps another file by now: it may have been replaced
        pieces = await wrap(_local_data)(local.fileno(), opened.st_size)
        async with _new_file(fs, file.destination, permissions(opened)) as remote:
            jobs = (_put_piece(fs, remote, local.fileno(), offset, size, progress) for offset, size in pieces)
            await gather_bounded(jobs, PIECES_AT_ONCE)
            if _end(pieces) < opened.st_size:
                await remote.truncate(opened.st_size)
    progress(1, opened.st_size - sum(size for _, size in pieces))


def _open_local(file: LocalFile) -> Any:
    """Open a file of a local tree for reading, in a thread."""
    return aiofiles.open(file.source, "rb", buffering=0, opener=lambda path, flags: open_file(file.top, path))


async def _put_piece(
    fs: AsyncFileSystem, remote: AsyncFile, local: int, offset: int, size: int, progress: CopyProgress
) -> None:
    piece = await _to_its_end(_read_piece, local, size, offset)
    await fs.write_batch([(remote, offset, piece)])
    progress(0, len(piece))


def _batches(files: Iterable[Small]) -> Iterator[list[Small]]:
    """Small files in groups, each for one batch of reads or writes."""
    batch: list[Small] = []
    size = 0
    for file in files:
        if batch and (len(batch) == BATCH_FILES or size + file.length_bytes > PIECE_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.length_bytes
    if batch:
        yield batch


async def _get_batch(fs: AsyncFileSystem, writer: SafeWriter, batch: list[RemoteFile], progress: CopyProgress) -> None:
    views = await fs.read_batch([(file.source, 0, file.length_bytes) for file in batch])
    now = await fs.stat_many([file.source for file in batch])
    whole, replaced = [], []
    for file, view, found in zip(batch, views, now, strict=True):
        if found is not None and found.inode == file.inode:
            whole.append((file, view))
        else:
            replaced.append(file)
    await _to_its_end(_write_files, writer, whole)
    for _, view in whole:
        progress(1, len(view))
    for file in replaced:
        await _get_large(fs, writer, file, progress)


def _write_files(writer: SafeWriter, files: Sequence[tuple[RemoteFile, memoryview]]) -> None:
    for file, content in files:
        with writer.new_file(file.destination, file.mode) as local:
            _write_all(local, content)


async def _to_its_end(function: Callable[..., T], *arguments: object) -> T:
    """Call a function in a thread. A cancelled caller waits for its end, so that nothing uses the file afterwards."""

    async def call() -> T:
        return await wrap(function)(*arguments)

    return await run_to_completion(call())


@asynccontextmanager
async def _in_thread(context: AbstractContextManager[T]) -> AsyncIterator[T]:
    """Enter and leave a context in a thread."""
    entered: T = await _to_its_end(context.__enter__)
    try:
        yield entered
    except BaseException as error:
        if not await _to_its_end(context.__exit__, type(error), error, error.__traceback__):
            raise
    else:
        await _to_its_end(context.__exit__, None, None, None)


@asynccontextmanager
async def _open_remote(fs: AsyncFileSystem, file: RemoteFile) -> AsyncIterator[tuple[AsyncFile, RemoteFile]]:
    """A file of the cluster, open, and what is known of it: it may have been replaced since it was listed, and the new
    one has a length and permissions of its own."""
    for _ in range(_OPEN_ATTEMPTS):
        async with await fs.open(file.source) as remote:
            if remote.inode == file.inode:
                yield remote, file
                return
        found = await fs.stat(file.source)
        file = replace(file, inode=found.inode, length_bytes=found.length, mode=found.mode)
    raise LimitExceeded(f"{file.source} is replaced again and again; try later")


async def _get_large(fs: AsyncFileSystem, writer: SafeWriter, file: RemoteFile, progress: CopyProgress) -> None:
    async with (
        _open_remote(fs, file) as (remote, file),
        _in_thread(writer.new_file(file.destination, file.mode)) as local,
    ):
        length_bytes = file.length_bytes
        pieces = await _remote_data(remote, length_bytes)
        length_then = remote.length  # it may have become shorter since it was listed
        jobs = (_get_piece(fs, remote, local, offset, size, progress) for offset, size in pieces)
        await gather_bounded(jobs, PIECES_AT_ONCE)
        length = min(length_bytes, length_then)
        if _end(pieces) < length:
            await _to_its_end(os.ftruncate, local, length)
    progress(1, length - sum(min(size, max(length - offset, 0)) for offset, size in pieces))


async def _get_piece(
    fs: AsyncFileSystem, remote: AsyncFile, local: int, offset: int, size: int, progress: CopyProgress
) -> None:
    (view,) = await fs.read_batch([(remote, offset, size)])
    await _to_its_end(_write_all, local, view, offset)
    progress(0, len(view))


def _write_all(file: int, view: memoryview, offset: int = 0) -> None:
    done = 0
    while done < len(view):
        done += os.pwrite(file, view[done:], offset + done)


async def _get_to_special(fs: AsyncFileSystem, file: RemoteFile, progress: CopyProgress) -> None:
    async with _open_remote(fs, file) as (remote, file), special_file.opened(file.destination) as sink:
        for offset, size in _pieces(file.length_bytes):
            (view,) = await fs.read_batch([(remote, offset, size)])
            await standard_streams.write(sink, view)
            progress(0, len(view))
    progress(1, 0)


def _read_piece(file: int, size: int, offset: int) -> memoryview:
    """Fewer bytes only at the end of the file: a file system may give a read less than there is."""
    view, done = memoryview(bytearray(size)), 0
    while done < size and (got := os.preadv(file, [view[done:]], offset + done)):
        done += got
    return view[:done]


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _pieces(length_bytes: int) -> Iterator[tuple[int, int]]:
    for offset in range(0, length_bytes, PIECE_BYTES):
        yield offset, min(PIECE_BYTES, length_bytes - offset)


def _local_data(file: int, length_bytes: int) -> list[tuple[int, int]]:
    """The pieces of a local file without those that are holes."""
    found = []
    for offset, size in _pieces(length_bytes):
        try:
            if os.lseek(file, offset, os.SEEK_DATA) < offset + size:
                found.append((offset, size))
        except OSError as error:
            if error.errno == errno.ENXIO:
                break  # there is only a hole up to the end
            found.append((offset, size))  # its file system knows no holes
    return found


async def _remote_data(remote: AsyncFile, length_bytes: int) -> list[tuple[int, int]]:
    """The same of a file of the cluster. Of one that other clients keep changing it is all pieces: the read of each
    finds out what is a hole."""
    pieces, handle = list(_pieces(length_bytes)), remote.handle
    retry = HoleRetry(handle.context, handle.file)
    for _ in range(_LIST_ATTEMPTS):
        change, data = handle.file.change, set[int]()
        async for begin, end in data_ranges(handle, 0, length_bytes):
            data.update(range(begin // PIECE_BYTES, -(-end // PIECE_BYTES)))
        if len(data) == len(pieces) or await retry.holes_are_final(0, length_bytes, change):
            return [(offset, size) for offset, size in pieces if offset // PIECE_BYTES in data]
    return pieces


def _end(pieces: Sequence[tuple[int, int]]) -> int:
    return sum(pieces[-1]) if pieces else 0


def destinations(sources: tuple[str, ...], destination: str, *, into: bool) -> list[tuple[str, str]]:
    """(source, where it goes), as `cp` does it: into an existing directory (`into`), else under the new name.

    Raises InvalidArgument for several sources and no directory to put them into.
    """
    if not into and len(sources) > 1:
        raise InvalidArgument(f"{destination} is not a directory, and {len(sources)} files are to be copied into it")
    if not into:
        return [(sources[0], destination)]
    return [(source, f"{destination.rstrip('/')}/{_last_name(source)}") for source in sources]


def _last_name(source: str) -> str:
    name = source.rstrip("/").rpartition("/")[2]
    if name in ("", ".", ".."):
        raise InvalidArgument(f"{source} has no name that the copy could have; name the destination in full")
    return name


def check_copies(tree: LocalTree | RemoteTree) -> None:
    """Raises InvalidArgument if one copy would replace another one, NotADirectory if a file would lie at a path that
    ends with /."""
    found: set[str] = set()
    for path in chain((file.destination for file in tree.files), (path for _, path in tree.symlinks)):
        if path.endswith("/"):
            raise NotADirectory(f"{path} is not a directory; make it first, or leave out the / at its end")
        if path in found:
            raise InvalidArgument(f"two of the files would both become {path}; copy them one by one")
        found.add(path)


async def gather_bounded(jobs: Iterable[Coroutine[Any, Any, object]], limit: int) -> None:
    """Run the coroutines of `jobs`, at most `limit` at a time. The first error cancels the rest and is raised."""
    remaining = iter(jobs)
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(limit):
                group.create_task(_run_each(remaining))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def _run_each(remaining: Iterator[Coroutine[Any, Any, object]]) -> None:
    for job in remaining:
        await job
