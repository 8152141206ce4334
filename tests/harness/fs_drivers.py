"""Drivers of a directory tree: the same calls with the same answers, wherever the tree is kept.

`KernelDriver` is any directory of this machine, a local one or a mount. `ClientDriver` (client_driver.py)
is the client library.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

#: A time that is set on purpose, on files whose time must not change by itself.
LONG_AGO_NS = 1_000_000_000 * 10**9
_RECENT_NS = 3 * LONG_AGO_NS // 2
SHOWN_XATTRS = ("user.", "system.posix_acl_")
NOREPLACE, EXCHANGE = 1, 2
_AT_FDCWD = -100
_OFD_SETLK = 37  # F_OFD_SETLK, for which Python has no name before 3.12

_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Shown:
    """What everybody sees of an inode."""

    type: int
    mode: int
    nlink: int
    uid: int
    gid: int
    size: int  # 0 for a directory: file systems do not agree on it
    mtime_ns: int  # 0: of this test; only times that were set can be compared


@dataclass(frozen=True, slots=True)
class Found:
    """What is found under a name when a whole tree is looked at."""

    shown: Shown
    same_as: str  # the first name of the same inode
    content: bytes
    xattrs: tuple[tuple[str, bytes], ...]


Tree = dict[str, Found]


class OpenedFile(Protocol):
    """An open file description."""

    def pread(self, offset: int, size: int) -> bytes: ...
    def pwrite(self, offset: int, data: bytes) -> int: ...
    def append(self, data: bytes) -> int: ...
    def truncate(self, size: int) -> None: ...
    def allocate(self, offset: int, length: int, mode: int) -> None: ...
    def sync(self) -> None: ...
    def lock(self, exclusive: bool) -> None: ...
    def unlock(self) -> None: ...
    def copy_to(self, other: Any, offset: int, at: int, length: int) -> int: ...
    def close(self) -> None: ...


class Driver(Protocol):
    """Paths are relative to the top of the tree."""

    def acting_as(self, uid: int) -> contextlib.AbstractContextManager[None]: ...
    def make_directory(self, path: str, mode: int) -> None: ...
    def make_directories(self, path: str) -> None: ...
    def make_file(self, path: str, mode: int) -> None: ...
    def make_node(self, path: str, mode: int) -> None: ...
    def remove_file(self, path: str) -> None: ...
    def remove_directory(self, path: str) -> None: ...
    def remove_tree(self, path: str) -> None: ...
    def link(self, source: str, target: str) -> None: ...
    def symlink(self, target: str, path: str) -> None: ...
    def readlink(self, path: str) -> str: ...
    def rename(self, source: str, target: str, flags: int) -> None: ...
    def names(self, path: str) -> list[str]: ...
    def look_in_a_row(self, paths: Sequence[str]) -> list[Shown | None]: ...
    def scan(self, path: str) -> list[tuple[str, Shown]]: ...
    def walk(self, path: str) -> list[tuple[str, list[str], list[str]]]: ...
    def stat(self, path: str, follow: bool) -> Shown: ...
    def stat_many(self, paths: Sequence[str]) -> list[Shown | None]: ...
    def access(self, path: str, wanted: int) -> bool: ...
    def chmod(self, path: str, mode: int) -> None: ...
    def chown(self, path: str, uid: int, gid: int, follow: bool) -> None: ...
    def utime(self, path: str, time_ns: int) -> None: ...
    def touch(self, path: str) -> None: ...
    def truncate(self, path: str, length: int) -> None: ...
    def getxattr(self, path: str, name: str) -> bytes: ...
    def setxattr(self, path: str, name: str, value: bytes, flags: int) -> None: ...
    def removexattr(self, path: str, name: str) -> None: ...
    def listxattr(self, path: str) -> list[str]: ...
    def read(self, path: str) -> bytes: ...
    def write(self, path: str, data: bytes) -> None: ...
    def append(self, path: str, data: bytes) -> None: ...
    def write_at(self, rows: Sequence[tuple[str, int, bytes]]) -> None: ...
    def read_at(self, rows: Sequence[tuple[str, int, int]]) -> list[bytes]: ...
    def open(self, path: str, mode: str) -> OpenedFile: ...
    def open_unnamed(self, directory: str, mode: int) -> OpenedFile: ...
    def link_file(self, file: Any, path: str) -> None: ...
    def make_files(self, paths: Sequence[str]) -> list[str]: ...
    def remove_all(self, paths: Sequence[str]) -> list[str]: ...
    def tree(self) -> Tree: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call gave."""

    value: Any = None
    error: str = ""


def name_of_error(error: OSError) -> str:
    return errno.errorcode[error.errno or 0]


def outcome(call: Callable[[], Any]) -> Outcome:
    try:
        return Outcome(call())
    except OSError as caught:
        return Outcome(error=name_of_error(caught))


def shown_time(mtime_ns: int) -> int:
    return mtime_ns if mtime_ns < _RECENT_NS else 0


def grouped(found: Iterable[tuple[str, int, Shown, bytes, Iterable[tuple[str, bytes]]]]) -> Tree:
    """(path, inode, shown, content, xattrs) of everything. Numbers of inodes differ between trees, names do not."""
    rows = sorted(found)
    first: dict[int, str] = {}
    for path, inode, *_ in rows:
        first.setdefault(inode, path)
    return {
        path: Found(shown, first[inode], content, tuple(sorted(xattrs))) for path, inode, shown, content, xattrs in rows
    }


class KernelFile:
    def __init__(self, number: int) -> None:
        self.number = number

    def pread(self, offset: int, size: int) -> bytes:
        return os.pread(self.number, size, offset)

    def pwrite(self, offset: int, data: bytes) -> int:
        return os.pwrite(self.number, data, offset)

    def append(self, data: bytes) -> int:
        return os.write(self.number, data)

    def truncate(self, size: int) -> None:
        os.ftruncate(self.number, size)

    def allocate(self, offset: int, length: int, mode: int) -> None:
        if _LIBC.fallocate(self.number, mode, ctypes.c_long(offset), ctypes.c_long(length)):
            raise OSError(ctypes.get_errno(), "fallocate")

    def sync(self) -> None:
        os.fsync(self.number)

    def lock(self, exclusive: bool) -> None:
        fcntl.flock(self.number, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)

    def unlock(self) -> None:
        fcntl.flock(self.number, fcntl.LOCK_UN)

    def record_lock(self, kind: int, start: int, length: int) -> None:
        """Of the open file, not of the process: so one process can be several."""
        fcntl.fcntl(self.number, _OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0))

    def copy_to(self, other: "KernelFile", offset: int, at: int, length: int) -> int:
        """No further than to where the source ends before: it may grow by that."""
        length = max(0, min(length, os.fstat(self.number).st_size - offset))
        done = 0
        while part := os.copy_file_range(self.number, other.number, length - done, offset + done, at + done):
            done += part
        return done

    def close(self) -> None:
        os.close(self.number)

    def inode(self) -> int:
        return os.fstat(self.number).st_ino


_FLAGS = {
    "rb": os.O_RDONLY,
    "r+b": os.O_RDWR,
    "wb": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "w+b": os.O_RDWR | os.O_CREAT | os.O_TRUNC,
    "xb": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "ab": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    "a+b": os.O_RDWR | os.O_CREAT | os.O_APPEND,
}


class KernelDriver:
    """Calls are made from inside the top directory, so nobody needs a permission for what lies above it."""

    def __init__(self, top: Path) -> None:
        self._top = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
        self._outside = os.open(".", os.O_RDONLY | os.O_DIRECTORY)

    def leave(self) -> None:
        os.close(self._top)
        os.close(self._outside)

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        os.fchdir(self._top)
        umask = os.umask(0)
        try:
            yield
        finally:
            os.umask(umask)
            os.fchdir(self._outside)

    @contextlib.contextmanager
    def acting_as(self, uid: int) -> Iterator[None]:
        groups = os.getgroups()
        os.setgroups([])
        os.setegid(uid)
        os.seteuid(uid)
        try:
            yield
        finally:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(groups)

    def make_directory(self, path: str, mode: int) -> None:
        with self.inside():
            os.mkdir(path, mode)

    def make_directories(self, path: str) -> None:
        """As the client does it: what a link leads to is made too."""
        with self.inside():
            try:
                os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                path = os.path.relpath(os.path.realpath(path))
            parts = path.split("/")
            for depth in range(1, len(parts) + 1):
                above = "/".join(parts[:depth])
                try:
                    os.mkdir(above, 0o755)
                except FileExistsError:
                    if depth == len(parts) and not os.path.isdir(above):
                        raise
                    if not stat.S_ISDIR(os.stat(above).st_mode):
                        raise OSError(errno.ENOTDIR, above) from None

    def make_file(self, path: str, mode: int) -> None:
        with self.inside():
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))

    def make_node(self, path: str, mode: int) -> None:
        with self.inside():
            os.mknod(path, mode)

    def remove_file(self, path: str) -> None:
        with self.inside():
            os.unlink(path)

    def remove_directory(self, path: str) -> None:
        with self.inside():
            os.rmdir(path)

    def remove_tree(self, path: str) -> None:
        with self.inside():
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                os.unlink(path)
                return
            for directory, directories, files in os.walk(path, topdown=False):
                for name in files:
                    os.unlink(f"{directory}/{name}")
                for name in directories:
                    below = f"{directory}/{name}"
                    (os.unlink if os.path.islink(below) else os.rmdir)(below)
            os.rmdir(path)

    def link(self, source: str, target: str) -> None:
        with self.inside():
            os.link(source, target, follow_symlinks=False)

    def symlink(self, target: str, path: str) -> None:
        with self.inside():
            os.symlink(target, path)

    def readlink(self, path: str) -> str:
        with self.inside():
            return os.readlink(path)

    def rename(self, source: str, target: str, flags: int) -> None:
        with self.inside():
            names = (os.fsencode(source), os.fsencode(target))
            if _LIBC.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], flags):
                raise OSError(ctypes.get_errno(), "renameat2")

    def names(self, path: str) -> list[str]:
        with self.inside():
            return sorted(os.listdir(path))

    def look_in_a_row(self, paths: Sequence[str]) -> list[Shown | None]:
        """One call each, as programs do; None: it is not there."""
        found: list[Shown | None] = []
        with self.inside():
            for path in paths:
                try:
                    found.append(shown(os.lstat(path)))
                except FileNotFoundError:
                    found.append(None)
        return found

    def scan(self, path: str) -> list[tuple[str, Shown]]:
        """Names together with what they are, as `ls -l` does it."""
        with self.inside(), os.scandir(path) as entries:
            return sorted((entry.name, shown(entry.stat(follow_symlinks=False))) for entry in entries)

    def walk(self, path: str) -> list[tuple[str, list[str], list[str]]]:
        """As the client has it: names of what is no directory are last, links are not followed."""

        def failed(error: OSError) -> None:
            raise error

        found = []
        with self.inside():
            for directory, directories, files in os.walk(path, onerror=failed):
                links = [name for name in directories if os.path.islink(f"{directory}/{name}")]
                own = sorted(set(directories) - set(links))
                found.append((os.path.normpath(directory), own, sorted([*files, *links])))
        return sorted(found)

    def stat(self, path: str, follow: bool) -> Shown:
        with self.inside():
            return shown(os.stat(path, follow_symlinks=follow))

    def stat_many(self, paths: Sequence[str]) -> list[Shown | None]:
        found: list[Shown | None] = []
        for path in paths:
            try:
                found.append(self.stat(path, True))
            except (FileNotFoundError, NotADirectoryError):
                found.append(None)
        return found

    def access(self, path: str, wanted: int) -> bool:
        with self.inside():
            os.stat(path)
            return os.access(path, wanted, effective_ids=True)

    def chmod(self, path: str, mode: int) -> None:
        with self.inside():
            os.chmod(path, mode)

    def chown(self, path: str, uid: int, gid: int, follow: bool) -> None:
        with self.inside():
            os.chown(path, uid, gid, follow_symlinks=follow)

    def utime(self, path: str, time_ns: int) -> None:
        with self.inside():
            os.utime(path, ns=(time_ns, time_ns))

    def touch(self, path: str) -> None:
        with self.inside():
            os.utime(path)

    def truncate(self, path: str, length: int) -> None:
        with self.inside():
            os.truncate(path, length)

    def getxattr(self, path: str, name: str) -> bytes:
        with self.inside():
            return os.getxattr(path, name)

    def setxattr(self, path: str, name: str, value: bytes, flags: int) -> None:
        with self.inside():
            os.setxattr(path, name, value, flags)

    def removexattr(self, path: str, name: str) -> None:
        with self.inside():
            os.removexattr(path, name)

    def listxattr(self, path: str) -> list[str]:
        with self.inside():
            return sorted(os.listxattr(path))

    def read(self, path: str) -> bytes:
        with self._opened(path, "rb") as number:
            return os.read(number, 1 << 24)

    def write(self, path: str, data: bytes) -> None:
        with self._opened(path, "wb") as number:
            os.write(number, data)

    def append(self, path: str, data: bytes) -> None:
        with self._opened(path, "ab") as number:
            os.write(number, data)

    def write_at(self, rows: Sequence[tuple[str, int, bytes]]) -> None:
        with contextlib.ExitStack() as stack:
            files = {path: stack.enter_context(self._opened(path, "r+b")) for path, _, _ in rows}
            for path, offset, data in rows:
                os.pwrite(files[path], data, offset)

    def read_at(self, rows: Sequence[tuple[str, int, int]]) -> list[bytes]:
        with contextlib.ExitStack() as stack:
            files = {path: stack.enter_context(self._opened(path, "rb")) for path, _, _ in rows}
            return [os.pread(files[path], size, offset) for path, offset, size in rows]

    def open(self, path: str, mode: str) -> KernelFile:
        return KernelFile(self._open(path, mode))

    def open_unnamed(self, directory: str, mode: int) -> KernelFile:
        with self.inside():
            return KernelFile(os.open(directory, os.O_TMPFILE | os.O_RDWR, mode))

    def link_file(self, file: KernelFile, path: str) -> None:
        os.link(f"/proc/self/fd/{file.number}", path, src_dir_fd=self._top, dst_dir_fd=self._top)

    def make_files(self, paths: Sequence[str]) -> list[str]:
        """What went wrong, in no particular order."""
        return sorted(outcome(partial(self.make_file, path, 0o644)).error for path in paths)

    def remove_all(self, paths: Sequence[str]) -> list[str]:
        """Files, links and empty directories."""
        return sorted(outcome(partial(self._remove, path)).error for path in paths)

    def _remove(self, path: str) -> None:
        with self.inside():
            (os.rmdir if stat.S_ISDIR(os.lstat(path).st_mode) else os.unlink)(path)

    def _open(self, path: str, mode: str) -> int:
        with self.inside():
            try:
                number = os.open(path, _FLAGS[mode] | os.O_NONBLOCK | os.O_NOCTTY, 0o644)
            except OSError as error:
                if error.errno == errno.ENXIO:  # a socket, or a FIFO that nobody reads
                    raise OSError(errno.EINVAL, path) from None
                raise
        if not stat.S_ISREG(os.fstat(number).st_mode):
            is_directory = stat.S_ISDIR(os.fstat(number).st_mode)
            os.close(number)
            raise OSError(errno.EISDIR if is_directory else errno.EINVAL, path)
        return number

    @contextlib.contextmanager
    def _opened(self, path: str, mode: str) -> Iterator[int]:
        number = self._open(path, mode)
        try:
            yield number
        finally:
            os.close(number)

    def tree(self) -> Tree:
        with self.inside():
            return grouped(self._tree("."))

    def _tree(self, directory: str) -> Iterator[tuple[str, int, Shown, bytes, Iterable[tuple[str, bytes]]]]:
        for name in os.listdir(directory):
            path = f"{directory}/{name}".removeprefix("./")
            found = os.lstat(path)
            content = b""
            xattrs = []
            if stat.S_ISLNK(found.st_mode):
                content = os.fsencode(os.readlink(path))
            else:
                names = [each for each in os.listxattr(path) if each.startswith(SHOWN_XATTRS)]
                xattrs = [(each, os.getxattr(path, each)) for each in names]
            if stat.S_ISREG(found.st_mode):
                content = Path(path).read_bytes()
            yield path, found.st_ino, shown(found), content, xattrs
            if stat.S_ISDIR(found.st_mode):
                yield from self._tree(path)


def shown(found: os.stat_result) -> Shown:
    return Shown(
        type=stat.S_IFMT(found.st_mode),
        mode=stat.S_IMODE(found.st_mode),
        nlink=found.st_nlink,
        uid=found.st_uid,
        gid=found.st_gid,
        size=0 if stat.S_ISDIR(found.st_mode) else found.st_size,
        mtime_ns=shown_time(found.st_mtime_ns),
    )
