"""Requests of the kernel, taken apart. Names are bytes without the zero at their end.

Each function gets the body of one kind of request and returns the arguments of the method that answers it, without the
inode and the caller, which all have. A body that is too short raises Malformed.
"""

import struct
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from threefs_fuse import protocol
from threefs_fuse.protocol import Changed

HEADER = Struct("=IIQQIIIHH")  # length, operation, number, inode, uid, gid, pid, extensions in 8 bytes, -
INIT = Struct("=IIII")  # major, minor, read-ahead, flags; then, if told so, flags2
FLAGS2 = Struct("=I")
INTERRUPT = Struct("=Q")
_GETATTR = Struct("=IIQ")
_STATX = Struct("=IIQII")
_SETATTR = Struct("=IIQQQQQQIIIIIIII")
_MKNOD = Struct("=IIII")
_MKDIR = Struct("=II")
_INODE = Struct("=Q")
_RENAME2 = Struct("=QII")
_OPEN = Struct("=II")
_CREATE = Struct("=IIII")
_READ = Struct("=QQIIQII")
_WRITE = _READ
_RELEASE = Struct("=QIIQ")
_FLUSH = Struct("=QIIQ")
_FSYNC = Struct("=QII")
_SETXATTR = Struct("=II")
_SETXATTR_EXT = Struct("=IIII")
_GETXATTR = Struct("=II")
_LOCK = Struct("=QQQQIIII")
_FALLOCATE = Struct("=QQQII")
_LSEEK = Struct("=QQII")
_COPY = Struct("=QQQQQQQ")
_ACCESS = Struct("=II")
_FORGET_COUNT = Struct("=II")
_FORGET_ONE = Struct("=QQ")
_EXTENSION = Struct("=II")

#: Where the payload of a WRITE begins in its buffer.
WRITE_HEAD_BYTES = HEADER.size + _WRITE.size
_NS = 1_000_000_000
_MAX_GROUPS = 64
_MAX_NAME_BYTES = 2 * protocol.HEAD_BYTES  # of a target of a link, too


class Malformed(Exception):
    """Not what the protocol says."""


class Caller(NamedTuple):  # one is made for each request, and a tuple is made quickest
    """The process for which the kernel asks. `pid` is 0 if it is in a place that we do not see."""

    uid: int
    gid: int
    pid: int
    groups: tuple[int, ...] = ()  # of its supplementary ones those that the kernel has told


@dataclass(frozen=True, slots=True)
class Setting:
    """New attributes; those that are not set are None. The times are Unix times in nanoseconds."""

    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    size: int | None = None
    atime_ns: int | None = None
    mtime_ns: int | None = None
    atime_now: bool = False
    mtime_now: bool = False
    handle: int | None = None
    kill_privileges: bool = False


@dataclass(frozen=True, slots=True)
class Lock:
    """Of the bytes from `start` to `end`, that one included. `type` is F_RDLCK, F_WRLCK or F_UNLCK."""

    start: int
    end: int
    type: int
    pid: int


def _names(body: memoryview, count: int) -> tuple[bytes, ...]:
    """So many strings, one behind the other."""
    parts = bytes(body).split(b"\0", count)
    if len(parts) <= count or max(map(len, parts[:count])) > _MAX_NAME_BYTES:
        raise Malformed("a name does not end")
    return tuple(parts[:count])


def name(body: memoryview) -> tuple[bytes]:
    found, end, _ = bytes(body).partition(b"\0")
    if not end or len(found) > _MAX_NAME_BYTES:
        raise Malformed("a name does not end")
    return (found,)


def nothing(body: memoryview) -> tuple[()]:
    return ()


def getattr_(body: memoryview) -> tuple[int | None]:
    flags, _, handle = _GETATTR.unpack_from(body)
    return (handle if flags & protocol.GETATTR_HANDLE else None,)


def statx(body: memoryview) -> tuple[int | None]:
    """Which attributes are wanted does not matter: all are told that there are."""
    flags, _, handle, _, _ = _STATX.unpack_from(body)
    return (handle if flags & protocol.GETATTR_HANDLE else None,)


def setattr_(body: memoryview) -> tuple[Setting]:
    (
        valid, _, handle, size, _owner, atime, mtime, _ctime, atime_ns, mtime_ns, _ctime_ns, mode, _, uid, gid, _,
    ) = _SETATTR.unpack_from(body)  # fmt: skip

    def if_set(flag: int, value: int) -> int | None:
        return value if valid & flag else None

    atime_now, mtime_now = bool(valid & Changed.ATIME_NOW), bool(valid & Changed.MTIME_NOW)
    return (
        Setting(
            mode=if_set(Changed.MODE, mode),
            uid=if_set(Changed.UID, uid),
            gid=if_set(Changed.GID, gid),
            size=if_set(Changed.SIZE, size),
            atime_ns=None if atime_now else if_set(Changed.ATIME, _time_ns(atime, atime_ns)),
            mtime_ns=None if mtime_now else if_set(Changed.MTIME, _time_ns(mtime, mtime_ns)),
            atime_now=atime_now,
            mtime_now=mtime_now,
            handle=if_set(Changed.HANDLE, handle),
            kill_privileges=bool(valid & Changed.KILL_SUIDGID),
        ),
    )


def _time_ns(seconds: int, nanoseconds: int) -> int:
    """The seconds travel as an unsigned number, those before 1970 as well.

    As the kernel does it for others: a time that cannot be stored becomes the first or the last one that can.
    """
    wanted = (seconds - (1 << 64) if seconds >> 63 else seconds) * _NS + nanoseconds
    return min(max(wanted, -(1 << 63)), (1 << 63) - 1)


def symlink(body: memoryview) -> tuple[bytes, bytes]:
    new, target = _names(body, 2)
    return new, target


def mknod(body: memoryview) -> tuple[bytes, int, int, int]:
    """Name, mode, device, umask."""
    mode, device, umask, _ = _MKNOD.unpack_from(body)
    return (*name(body[_MKNOD.size :]), mode, device, umask)


def mkdir(body: memoryview) -> tuple[bytes, int, int]:
    mode, umask = _MKDIR.unpack_from(body)
    return (*name(body[_MKDIR.size :]), mode, umask)


def rename(body: memoryview) -> tuple[bytes, int, bytes, int]:
    """Name, new parent, new name, flags."""
    (parent,) = _INODE.unpack_from(body)
    old, new = _names(body[_INODE.size :], 2)
    return old, parent, new, 0


def rename2(body: memoryview) -> tuple[bytes, int, bytes, int]:
    parent, flags, _ = _RENAME2.unpack_from(body)
    old, new = _names(body[_RENAME2.size :], 2)
    return old, parent, new, flags


def link(body: memoryview) -> tuple[int, bytes]:
    """The inode that gets the name; the directory is that of the request."""
    return (_INODE.unpack_from(body)[0], *name(body[_INODE.size :]))


def open_(body: memoryview) -> tuple[int, bool]:
    """Flags; whether privileges of the file end."""
    flags, more = _OPEN.unpack_from(body)
    return flags, bool(more & protocol.OPEN_KILL_SUIDGID)


def create(body: memoryview) -> tuple[bytes, int, int, int]:
    """Name, flags, mode, umask."""
    flags, mode, umask, _ = _CREATE.unpack_from(body)
    return (*name(body[_CREATE.size :]), flags, mode, umask)


def read(body: memoryview) -> tuple[int, int, int]:
    """Handle, offset, size."""
    handle, offset, size, _, _, _, _ = _READ.unpack_from(body)
    return handle, offset, min(size, protocol.MAX_PAYLOAD_BYTES)


def write(body: memoryview) -> tuple[int, int, memoryview, int, int]:
    """Handle, offset, payload, flags of this write, flags of the open file."""
    handle, offset, size, how, _, flags, _ = _WRITE.unpack_from(body)
    payload = body[_WRITE.size :]
    if len(payload) != size:
        raise Malformed("a write does not have the length that it says")
    return handle, offset, payload, how, flags


def release(body: memoryview) -> tuple[int, int, bool]:
    """Handle, owner of locks, whether its flock locks end."""
    handle, _, flags, owner = _RELEASE.unpack_from(body)
    return handle, owner, bool(flags & protocol.RELEASE_FLOCK_UNLOCK)


def releasedir(body: memoryview) -> tuple[int]:
    return (_RELEASE.unpack_from(body)[0],)


def flush(body: memoryview) -> tuple[int, int]:
    """Handle, owner of locks."""
    handle, _, _, owner = _FLUSH.unpack_from(body)
    return handle, owner


def fsync(body: memoryview) -> tuple[int, bool]:
    handle, flags, _ = _FSYNC.unpack_from(body)
    return handle, bool(flags & protocol.FSYNC_ONLY_DATA)


def setxattr(body: memoryview) -> tuple[bytes, bytes, int]:
    """Name, value, XATTR_CREATE or XATTR_REPLACE. As agreed by SETXATTR_EXT, else see `old_setxattr`."""
    size, flags, _, _ = _SETXATTR_EXT.unpack_from(body)
    return _named_value(body[_SETXATTR_EXT.size :], size, flags)


def old_setxattr(body: memoryview) -> tuple[bytes, bytes, int]:
    size, flags = _SETXATTR.unpack_from(body)
    return _named_value(body[_SETXATTR.size :], size, flags)


def _named_value(body: memoryview, size: int, flags: int) -> tuple[bytes, bytes, int]:
    key = bytes(body[: protocol.NAME_BYTES]).partition(b"\0")[0]
    value = bytes(body[len(key) + 1 :])
    if len(value) != size:
        raise Malformed("a value does not have the length that it says")
    return key, value, flags


def getxattr(body: memoryview) -> tuple[int, bytes]:
    """Room for the answer (0: only its length is wanted), name."""
    return (_GETXATTR.unpack_from(body)[0], *name(body[_GETXATTR.size :]))


def listxattr(body: memoryview) -> tuple[int]:
    return (_GETXATTR.unpack_from(body)[0],)


def lock(body: memoryview) -> tuple[int, int, Lock, bool]:
    """Handle, owner, lock, whether it is one of flock(2)."""
    handle, owner, start, end, kind, pid, flags, _ = _LOCK.unpack_from(body)
    return handle, owner, Lock(start, end, kind, pid), bool(flags & protocol.LOCK_IS_FLOCK)


def access(body: memoryview) -> tuple[int]:
    return (_ACCESS.unpack_from(body)[0],)


def fallocate(body: memoryview) -> tuple[int, int, int, int]:
    """Handle, offset, length, mode."""
    handle, offset, length, mode, _ = _FALLOCATE.unpack_from(body)
    return handle, offset, length, mode


def lseek(body: memoryview) -> tuple[int, int, int]:
    """Handle, offset, SEEK_DATA or SEEK_HOLE."""
    handle, offset, whence, _ = _LSEEK.unpack_from(body)
    return handle, offset, whence


def copy_file_range(body: memoryview) -> tuple[int, int, int, int, int, int]:
    """Handle and offset of the source; inode, handle and offset of the destination; length."""
    handle, offset, to_inode, to_handle, to_offset, length, _ = _COPY.unpack_from(body)
    return handle, offset, to_inode, to_handle, to_offset, length


def forget(inode: int, body: memoryview) -> tuple[tuple[int, int], ...]:
    """Inode, and how often it was told."""
    return ((inode, _INODE.unpack_from(body)[0]),)


def batch_forget(body: memoryview) -> tuple[tuple[int, int], ...]:
    count, _ = _FORGET_COUNT.unpack_from(body)
    rest = body[_FORGET_COUNT.size :]
    if count * _FORGET_ONE.size > len(rest):
        raise Malformed("fewer inodes are forgotten than are announced")
    return tuple(_FORGET_ONE.iter_unpack(rest[: count * _FORGET_ONE.size]))


def groups(extensions: memoryview) -> tuple[int, ...]:
    """What the kernel tells of the caller's supplementary groups."""
    at = 0
    while at + _EXTENSION.size <= len(extensions):
        size, kind = _EXTENSION.unpack_from(extensions, at)
        if size < _EXTENSION.size:
            break
        if kind == protocol.EXTENSION_GROUPS:
            (count,) = struct.unpack_from("=I", extensions, at + _EXTENSION.size)
            return struct.unpack_from(f"={min(count, _MAX_GROUPS)}I", extensions, at + _EXTENSION.size + 4)
        at += size + -size % 8
    return ()
