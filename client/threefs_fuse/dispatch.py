"""Which method of the file system answers which request, and how requests and answers are translated."""

import errno
import fcntl
import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from threefs_fuse import replies, requests
from threefs_fuse.protocol import Feature, Op
from threefs_fuse.replies import Page, Parts
from threefs_fuse.requests import Lock

Arguments = tuple[Any, ...]


def _never(arguments: Arguments) -> bool:
    """A change is finished, so that its outcome is known."""
    return False


def _always(arguments: Arguments) -> bool:
    return True


def _opens_for_reading(arguments: Arguments) -> bool:
    flags: int = arguments[0]
    return not flags & (os.O_WRONLY | os.O_RDWR | os.O_TRUNC)


def _locks(arguments: Arguments) -> bool:
    lock: Lock = arguments[2]
    return lock.type != fcntl.F_UNLCK


@dataclass(frozen=True, slots=True)
class Operation:
    """`decode` returns the arguments of `method` that follow inode and caller. `encode` packs its result."""

    method: str
    decode: Callable[[memoryview], Arguments]
    encode: Callable[[Any], Parts] = replies.nothing
    cancellable: Callable[[Arguments], bool] = _never  # whether a signal that ends the program cancels it
    blocking: bool = False  # it waits for other programs, so any signal cancels it
    sized: bool = False  # the first argument is the room for the answer
    eager: bool = False  # the method is started before there is a task for it, see threefs.env.eager


def sized(room: int, parts: Parts) -> Parts:
    """The answer for a program with that room; its size if the room is 0. Raises OSError if the room is too small."""
    length = sum(map(len, parts))
    if not room:
        return replies.size(length)
    if length > room:
        raise OSError(errno.ERANGE, os.strerror(errno.ERANGE))
    return parts


def _page(body: memoryview, *, plus: bool) -> tuple[int, int, Page]:
    handle, offset, size = requests.read(body)
    return handle, offset, Page(size, plus=plus)


_TABLE: dict[int, Operation] = {
    Op.LOOKUP: Operation("lookup", requests.name, replies.entry, _always, eager=True),
    Op.GETATTR: Operation("getattr", requests.getattr_, replies.attributes, _always, eager=True),
    Op.STATX: Operation("getattr", requests.statx, replies.statx, _always, eager=True),
    Op.SETATTR: Operation("setattr", requests.setattr_, replies.attributes),
    Op.READLINK: Operation("readlink", requests.nothing, replies.plain, _always),
    Op.STATFS: Operation("statfs", requests.nothing, replies.space, _always),
    Op.ACCESS: Operation("access", requests.access, cancellable=_always),
    Op.SYMLINK: Operation("symlink", requests.symlink, replies.entry),
    Op.MKNOD: Operation("mknod", requests.mknod, replies.entry),
    Op.MKDIR: Operation("mkdir", requests.mkdir, replies.entry, eager=True),
    Op.UNLINK: Operation("unlink", requests.name, eager=True),
    Op.RMDIR: Operation("rmdir", requests.name, eager=True),
    Op.RENAME: Operation("rename", requests.rename, eager=True),
    Op.RENAME2: Operation("rename", requests.rename2, eager=True),
    Op.LINK: Operation("link", requests.link, replies.entry),
    Op.OPEN: Operation("open", requests.open_, replies.opened, _opens_for_reading),
    Op.CREATE: Operation("create", requests.create, replies.created, eager=True),
    Op.TMPFILE: Operation("tmpfile", requests.create, replies.created),
    Op.READ: Operation("read", requests.read, replies.plain, _always),
    Op.WRITE: Operation("write", requests.write, replies.written),
    Op.FLUSH: Operation("flush", requests.flush),
    Op.FSYNC: Operation("fsync", requests.fsync, cancellable=_always),
    Op.RELEASE: Operation("release", requests.release),
    Op.FALLOCATE: Operation("fallocate", requests.fallocate),
    Op.LSEEK: Operation("lseek", requests.lseek, replies.offset, _always),
    Op.COPY_FILE_RANGE: Operation("copy_file_range", requests.copy_file_range, replies.written),
    Op.GETLK: Operation("getlk", requests.lock, replies.lock, _always),
    Op.SETLK: Operation("setlk", requests.lock),
    Op.SETLKW: Operation("setlkw", requests.lock, cancellable=_locks, blocking=True),
    Op.OPENDIR: Operation("opendir", requests.open_, replies.opened, _always),
    Op.READDIR: Operation("readdir", functools.partial(_page, plus=False), replies.page, _always, eager=True),
    Op.READDIRPLUS: Operation("readdir", functools.partial(_page, plus=True), replies.page, _always, eager=True),
    Op.RELEASEDIR: Operation("releasedir", requests.releasedir),
    Op.FSYNCDIR: Operation("fsyncdir", requests.fsync, cancellable=_always),
    Op.SYNCFS: Operation("syncfs", requests.nothing, cancellable=_always),
    Op.SETXATTR: Operation("setxattr", requests.setxattr),
    Op.GETXATTR: Operation("getxattr", requests.getxattr, replies.plain, _always, sized=True),
    Op.LISTXATTR: Operation("listxattr", requests.listxattr, replies.names, _always, sized=True),
    Op.REMOVEXATTR: Operation("removexattr", requests.name),
}


def negotiated_operations(features: Feature) -> dict[int, Operation]:
    """The operations by their numbers, as far as they depend on the agreed features."""
    if features & Feature.SETXATTR_EXT:
        return _TABLE
    return {**_TABLE, Op.SETXATTR: Operation("setxattr", requests.old_setxattr)}
