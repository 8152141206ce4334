"""Decodes the requests of the kernel. Names are bytes without the zero byte at their end.

Each function decodes the body of one kind of request. It returns the arguments of the method that answers the request,
without the inode and the caller, which all methods have. It raises Malformed, or struct.error for a body that is too
short.
"""

import struct
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from threefs_fuse import protocol
from threefs_fuse.protocol import Changed

HEADER = Struct("=IIQQIIIHH")  # length, operation, number, inode, uid, gid, pid, extensions in 8 bytes, -
INIT = Struct("=IIII")  # major, minor, read-ahead, flags; flags2 follow if a flag says so
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
_MAX_NAME_BYTES = 2 * protocol.HEAD_BYTES  # also of the target of a link


class Malformed(Exception):
    """A request that does not follow the protocol."""


class Caller(NamedTuple):  # one for each request, and a tuple is the fastest to make
    """The process for which the kernel asks. `pid` is 0 if it is in a PID namespace that this process cannot see."""

    uid: int
    gid: int
    pid: int
    groups: tuple[int, ...] = ()  # the supplementary groups that the kernel has sent


@dataclass(frozen=True, slots=True)
class Setting:
    """New attributes; None for those that stay. Times are Unix times in nanoseconds."""

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
    """A lock of the bytes from `start` to `end`, inclusive. `type` is F_RDLCK, F_WRLCK or F_UNLCK."""

    start: int
    end: int
    type: int
    pid: int


def _names(body: memoryview, count: int) -> tuple[bytes, ...]:
    """`count` names, one behind the other."""
    parts = bytes(body).split(b"\0", count)
    if len(parts) <= count or max(map(len, parts[:count])) > _MAX_NAME_BYTES:
        raise Malformed(f"a request does not have {count} names of at most {_MAX_NAME_BYTES} bytes")
    return tuple(parts[:count])


def name(body: memoryview) -> tuple[bytes]:
    found, end, _ = bytes(body).partition(b"\0")
    if not end or len(found) > _MAX_NAME_BYTES:
        raise Malformed(f"a request does not have a name of at most {_MAX_NAME_BYTES} bytes")
    return (found,)


def nothing(body: memoryview) -> tuple[()]:
    return ()


def getattr_(body: memoryview) -> tuple[int | None]:
    flags, _, handle = _GETATTR.unpack_from(body)
    return (handle if flags & protocol.GETATTR_HANDLE else None,)


def statx(body: memoryview) -> tuple[int | None]:
    """The mask of wanted attributes is ignored: the answer has all of them."""
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
    """The kernel sends the seconds as an unsigned number, also before 1970.

    A time that cannot be stored becomes the first or the last one that can, as the kernel does for other file systems.
    """
    wanted = (seconds - (1 << 64) if seconds >> 63 else seconds) * _NS + nanoseconds
    return min(max(wanted, -(1 << 63)), (1 << 63) - 1)


def symlink(body: memoryview) -> tuple[bytes, bytes]:
    """Name, target."""
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
    """Flags; whether the open drops the privileges of the file."""
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
        raise Malformed(f"a write has {len(payload)} bytes and says {size}")
    return handle, offset, payload, how, flags


def release(body: memoryview) -> tuple[int, int, bool]:
    """Handle, owner of locks, whether the flock locks of the owner end."""
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
    """Name, value, XATTR_CREATE or XATTR_REPLACE. Without the feature SETXATTR_EXT: `old_setxattr`."""
    size, flags, _, _ = _SETXATTR_EXT.unpack_from(body)
    return _named_value(body[_SETXATTR_EXT.size :], size, flags)


def old_setxattr(body: memoryview) -> tuple[bytes, bytes, int]:
    size, flags = _SETXATTR.unpack_from(body)
    return _named_value(body[_SETXATTR.size :], size, flags)


def _named_value(body: memoryview, size: int, flags: int) -> tuple[bytes, bytes, int]:
    key = bytes(body[: protocol.NAME_BYTES]).partition(b"\0")[0]
    value = bytes(body[len(key) + 1 :])
    if len(value) != size:
        raise Malformed(f"the value of an extended attribute has {len(value)} bytes, and the request says {size}")
    return key, value, flags


def getxattr(body: memoryview) -> tuple[int, bytes]:
    """Room for the answer (0: only its length is wanted), name."""
    return (_GETXATTR.unpack_from(body)[0], *name(body[_GETXATTR.size :]))


def listxattr(body: memoryview) -> tuple[int]:
    return (_GETXATTR.unpack_from(body)[0],)


def lock(body: memoryview) -> tuple[int, int, Lock, bool]:
    """Handle, owner, lock, whether it is a flock(2) lock."""
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
    """(inode, number of answers that had it)."""
    return ((inode, _INODE.unpack_from(body)[0]),)


def batch_forget(body: memoryview) -> tuple[tuple[int, int], ...]:
    count, _ = _FORGET_COUNT.unpack_from(body)
    rest = body[_FORGET_COUNT.size :]
    if count * _FORGET_ONE.size > len(rest):
        raise Malformed(f"a request to forget says {count} inodes and has {len(rest) // _FORGET_ONE.size}")
    return tuple(_FORGET_ONE.iter_unpack(rest[: count * _FORGET_ONE.size]))


def groups(extensions: memoryview) -> tuple[int, ...]:
    """The caller's supplementary groups, as far as the kernel sends them."""
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
