"""Local files. All code reaches a disk through this module, so that a simulation can replace the disk.

Calls that may block are coroutines, which the real disk runs in threads. When such a call has returned, raised or been
cancelled, it does not touch the memory that it was given any more.

A transfer goes through the page cache or past it ("direct"). Direct transfers cost a tenth of the CPU time if they are
large, but offset, length and memory must be multiples of `DIRECT_BYTES`. A call that asks for a direct transfer without
meeting this, or on a file system without direct transfers, goes through the page cache. Both see the same bytes.
"""

import asyncio
import contextlib
import ctypes
import errno
import os
import shutil
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeVar, TypeVarTuple

import numpy as np

from threefs.checksums import Buffer
from threefs.env.eager import StartedCoroutine
from threefs.env.shielded_wait import shielded
from threefs.env.sync_policy import SyncPolicy
from threefs.errors import EXHAUSTED, FULL_DISK, DiskFailed, NoSpace, ThreefsError, Unavailable

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: Direct transfers are made of units of this size, in the file and in memory.
DIRECT_BYTES = 4096

_IO_THREADS = 16
_MAX_PARTS = 1024  # of one pwritev
#: The maximum that is written and synced on the event loop, even if the disk is fast.
MAX_NOW_BYTES = 64 << 10
#: The end of the name of a directory while it is removed. The next start removes what has such a name, so it is none
#: that somebody gives a directory who moves it out of the way.
LEAVING = ".being-removed"
_CLOSED = -1  # no descriptor
_STAT_BLOCK_BYTES = 512
_PUNCH_HOLE_KEEP_SIZE = 0x01 | 0x02

#: Offset in the file, and the bytes to write there.
Write = tuple[int, Sequence[Buffer]]


@dataclass(frozen=True, slots=True)
class DiskSpace:
    capacity_bytes: int
    free_bytes: int
    disk: str = ""  # identifies the file system until the machine is restarted


class File(Protocol):
    """An open file. All calls raise NoSpace, DiskFailed, and Unavailable: there is no memory, try again."""

    def read_now(self, offset: int, into: memoryview) -> int:
        """Read bytes that are in memory, without waiting for the disk. Returns the number of bytes read."""
        ...

    async def read(self, offset: int, into: memoryview, *, direct: bool = False) -> int:
        """Fill `into`. Returns the number of bytes read, which is less only at the end of the file."""
        ...

    async def write(self, offset: int, parts: Sequence[Buffer], *, direct: bool = False) -> None:
        """Write the parts one after the other. Not durable before `sync`."""
        ...

    async def sync(self, writes: Sequence[Write] = ()) -> None:
        """Do these writes, then make them durable, and all writes that had ended before this call."""
        ...

    def sync_now(self, writes: Sequence[Write]) -> bool:
        """Do the same for a few bytes on the event loop. False: it may take too long, and nothing was done."""
        ...

    async def allocate(self, offset: int, length: int) -> None:
        """Reserve room on the disk, and grow the file to that end. New bytes are zeros. Not durable before `sync`."""
        ...

    async def release(self, offset: int, length: int) -> None:
        """Free the room of a range if the file system can. The range then reads as zeros."""
        ...

    def size(self) -> int: ...

    def allocated(self) -> int:
        """The bytes of room that the file takes on the disk: less than its size if it has holes."""
        ...

    async def close(self) -> None: ...


class Disk(Protocol):
    """What waits raises NoSpace, DiskFailed, and Unavailable: there are no descriptors or no memory, try again."""

    async def open(self, path: Path) -> File:
        """Open for reading and writing. A missing file is created, and its name made durable."""
        ...

    async def make_directory(self, path: Path) -> None:
        """Make a directory with its parents, durably. It may exist."""
        ...

    async def remove_directory(self, path: Path) -> None:
        """Remove it with all that is in it, and what a crash has left of such a removal; nothing if neither exists.
        After a crash the directory is whole, or gone."""
        ...

    async def list_directory(self, path: Path) -> list[str]:
        """The names in a directory, sorted; none if it does not exist."""
        ...

    async def directory_bytes(self, path: Path) -> int:
        """The room that the files in a directory, and in those below it, take on the disk; 0 if it does not exist."""
        ...

    def space(self, path: Path) -> DiskSpace:
        """The space of the file system of `path`, for unprivileged users. Raises nothing but DiskFailed."""
        ...


async def run_to_completion(work: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:
    """The result of `work`, which runs to its end even if the caller is cancelled. The cancellation is raised after it.

    A coroutine is started at once, and gets a task only if it has to wait (see `StartedCoroutine`).
    """
    if asyncio.isfuture(work):
        future = work
    else:
        try:
            future = asyncio.ensure_future(StartedCoroutine(work, work.send(None)))
        except StopIteration as done:
            result: T = done.value
            return result
    try:
        return await shielded(future)
    except asyncio.CancelledError:
        while not future.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # retrieved, because the cancellation is raised instead
        raise


class RealDisk:
    """Files of the operating system. One for all files of a process: it owns the threads."""

    def __init__(self, threads: int = _IO_THREADS) -> None:
        self._executor = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="threefs-disk")

    async def open(self, path: Path) -> "RealFile":
        return await self._run(_open, path, self._run)

    async def make_directory(self, path: Path) -> None:
        await self._run(_make_directory, path)

    async def remove_directory(self, path: Path) -> None:
        await self._run(_remove_directory, path)

    async def list_directory(self, path: Path) -> list[str]:
        return await self._run(_list_directory, path)

    async def directory_bytes(self, path: Path) -> int:
        return await self._run(_directory_bytes, path)

    def space(self, path: Path) -> DiskSpace:
        try:
            status = os.statvfs(path)
            device = os.stat(path).st_dev
        except OSError as error:
            raise DiskFailed(f"{path}: {error.strerror}") from error
        return DiskSpace(
            status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize, f"{_boot_id()}:{device:x}"
        )

    async def close(self) -> None:
        """Return when every call has ended. All files must be closed before."""
        # shutdown() joins the threads, so it must not run on the loop; the executor of the loop is there for that.
        await asyncio.get_running_loop().run_in_executor(None, self._executor.shutdown)

    async def _run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        # Not through a Worker, which would cost a task per call.
        return await run_to_completion(asyncio.get_running_loop().run_in_executor(self._executor, function, *args))


class _Run(Protocol):
    async def __call__(self, function: Callable[[*Ts], T], *args: *Ts) -> T: ...


class RealFile:
    def __init__(self, path: Path, cached: int, direct: int | None, run: _Run) -> None:
        self._path = path
        self._cached = cached
        self._direct = direct
        self._run = run
        self._nowait = True
        self._sync_policy = SyncPolicy()

    def read_now(self, offset: int, into: memoryview) -> int:
        if not self._nowait:
            return 0
        try:
            return os.preadv(self._cached, (into,), offset, os.RWF_NOWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise _error_of(error, self._path) from error
            self._nowait = False  # this file system does not support it, so every read is in a thread
            return 0

    async def read(self, offset: int, into: memoryview, *, direct: bool = False) -> int:
        fd = self._descriptor(direct, offset, [into])
        return await self._run(self._read, fd, offset, into)

    async def write(self, offset: int, parts: Sequence[Buffer], *, direct: bool = False) -> None:
        fd = self._descriptor(direct, offset, parts)
        await self._run(self._write, fd, offset, parts)

    async def sync(self, writes: Sequence[Write] = ()) -> None:
        await self._run(self._sync, writes)

    def sync_now(self, writes: Sequence[Write]) -> bool:
        size = sum(len(part) for _, parts in writes for part in parts)
        if not 0 < size <= MAX_NOW_BYTES or not self._sync_policy.on_loop:
            return False
        self._sync(writes)
        return True

    async def allocate(self, offset: int, length: int) -> None:
        await self._run(self._allocate, offset, length)

    async def release(self, offset: int, length: int) -> None:
        await self._run(_punch, self._cached, offset, length)

    def size(self) -> int:
        with _mapped(self._path):
            return os.fstat(self._cached).st_size

    def allocated(self) -> int:
        with _mapped(self._path):
            return os.fstat(self._cached).st_blocks * _STAT_BLOCK_BYTES

    async def close(self) -> None:
        """What is called later fails: the descriptors may be those of other files by then. Nothing may be under way."""
        descriptors = [each for each in (self._cached, self._direct) if each not in (_CLOSED, None)]
        self._cached, self._direct = _CLOSED, None
        await self._run(_close, descriptors)

    def _descriptor(self, direct: bool, offset: int, parts: Sequence[Buffer]) -> int:
        if not direct or self._direct is None or offset % DIRECT_BYTES or not all(map(is_aligned, parts)):
            return self._cached
        return self._direct

    def _read(self, fd: int, offset: int, into: memoryview) -> int:
        done = 0
        with _mapped(self._path):
            while done < len(into):
                count = os.preadv(fd, (into[done:],), offset + done)
                if count == 0:
                    break
                done += count
                if done % DIRECT_BYTES:
                    fd = self._cached  # after a short read the rest is not aligned
        return done

    def _write(self, fd: int, offset: int, parts: Sequence[Buffer]) -> None:
        left = [memoryview(part).cast("B") for part in parts]
        with _mapped(self._path):
            while left:
                count = os.pwritev(fd, left[:_MAX_PARTS], offset)
                offset += count
                if count % DIRECT_BYTES:
                    fd = self._cached
                while left and count >= len(left[0]):
                    count -= len(left.pop(0))
                if count:
                    left[0] = left[0][count:]

    def _sync(self, writes: Sequence[Write]) -> None:
        began = time.monotonic()
        for offset, parts in writes:
            self._write(self._cached, offset, parts)
        with _mapped(self._path):
            try:
                os.fdatasync(self._cached)
            except OSError as error:
                if error.errno in EXHAUSTED:  # what was to reach the disk may be forgotten: a next sync would not tell
                    raise DiskFailed(f"{self._path}: {error.strerror}") from error
                raise
        self._sync_policy.record(time.monotonic() - began)

    def _allocate(self, offset: int, length: int) -> None:
        with _mapped(self._path):
            os.posix_fallocate(self._cached, offset, length)


@lru_cache(maxsize=1)
def _boot_id() -> str:
    """An id of this machine that changes with every boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def is_aligned(part: Buffer) -> bool:
    """Whether memory can be used for a direct transfer."""
    if len(part) % DIRECT_BYTES:
        return False
    return np.frombuffer(part, np.uint8).__array_interface__["data"][0] % DIRECT_BYTES == 0 if len(part) else True


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _open(path: Path, run: _Run) -> RealFile:
    with _mapped(path):
        created = not path.exists()
        cached = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Neighbours in the file are unrelated, so readahead would only fetch bytes that are not needed.
            os.posix_fadvise(cached, 0, 0, os.POSIX_FADV_RANDOM)
            if created:
                _sync_name(path, path.unlink)
            direct = _open_direct(path)
        except OSError:
            os.close(cached)
            raise
    return RealFile(path, cached, direct, run)


def _open_direct(path: Path) -> int | None:
    """None on a file system without direct transfers."""
    try:
        return os.open(path, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return None


def _make_directory(path: Path) -> None:
    with _mapped(path):
        missing = [directory for directory in (path, *path.parents) if not directory.exists()]
        for directory in reversed(missing):
            directory.mkdir(exist_ok=True)
            _sync_name(directory, directory.rmdir)


def _remove_directory(path: Path) -> None:
    # Its files go one by one, so it gets another name first: after a crash nobody takes a part of it for the whole.
    leaving = path.with_name(f"{path.name}{LEAVING}")
    with _mapped(path):
        if leaving.exists():
            sync_directory(path.parent)  # who gave it that name may have failed to
            shutil.rmtree(leaving)
        if path.exists():
            path.rename(leaving)
            sync_directory(path.parent)
            shutil.rmtree(leaving)
            sync_directory(path.parent)


def _list_directory(path: Path) -> list[str]:
    with _mapped(path):
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []


def _directory_bytes(path: Path) -> int:
    taken = 0
    with _mapped(path):
        for above, _, names in os.walk(path):
            for name in names:
                with contextlib.suppress(FileNotFoundError):  # somebody removes them meanwhile
                    taken += os.lstat(os.path.join(above, name)).st_blocks * _STAT_BLOCK_BYTES
    return taken


def _sync_name(path: Path, remove: Callable[[], None]) -> None:
    """Make the name of a new file or directory durable. Where that fails it goes: who finds it takes it for durable."""
    try:
        sync_directory(path.parent)
    except OSError:
        remove()
        raise


def sync_directory(path: Path) -> None:
    """Else a power cut could take the names that were made, or changed, in it."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _punch(fd: int, offset: int, length: int) -> None:
    # A file system without holes keeps the room, which is no error.
    _LIBC.fallocate(fd, _PUNCH_HOLE_KEEP_SIZE, ctypes.c_int64(offset), ctypes.c_int64(length))


_LIBC = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def _mapped(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _error_of(error, path) from error


def _error_of(error: OSError, path: Path) -> ThreefsError:
    if error.errno in FULL_DISK:
        return NoSpace(f"the disk of {path} is full")
    if error.errno in EXHAUSTED:
        return Unavailable(f"{path}: {error.strerror}")
    return DiskFailed(f"{path}: {error.strerror}")
