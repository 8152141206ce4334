"""Messages to the kernel, as bytes: replies to its requests, and notifications, which it did not ask for."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from struct import Struct
from typing import NamedTuple, TypeAlias

from threefs_fuse import protocol
from threefs_fuse.dirents import HEAD as DIRENT
from threefs_fuse.dirents import Dirents
from threefs_fuse.protocol import OpenFlag
from threefs_fuse.requests import Lock

HEADER = Struct("=IiQ")  # length, -errno, number of the request
_ENTRY = Struct("=QQQQII" + "QQQQQQIIIIIIIIII")
_VALID_AT, _ATTRIBUTES_AT = 16, 40  # offsets in an entry
_VALID = Struct("=QQII")
_GETATTR = Struct("=QII")  # the attributes follow
_STATX = Struct("=QII16x IIQIIIH2xQQQQ qI4xqI4xqI4xqI4x IIII112x")
_OPEN = Struct("=QII")
_WRITE = Struct("=II")
_STATFS = Struct("=QQQQQIIII24x")
_SIZE = Struct("=II")
_LOCK = Struct("=QQII")
_LSEEK = Struct("=Q")
_INVAL_INODE = Struct("=Qqq")
_NS = 1_000_000_000
_BASIC_STATS, _BIRTH_TIME = 0x7FF, 0x800  # which attributes an answer to statx has
_UNSIGNED = (1 << 64) - 1
_DEVICE = (1 << 32) - 1
_NO_ENTRY = bytes(_ENTRY.size)
_pack_entry = _ENTRY.pack
#: The kernel treats the open file by its defaults.
NO_FLAGS = OpenFlag(0)

#: packed_entries(dirents, number, count): the packed entries from a number on; None where attributes are not known.
PackedEntries: TypeAlias = Callable[[Dirents, int, int], Sequence[bytes | None]]
#: The parts of an answer, which are sent one behind the other.
Parts = tuple[bytes | bytearray | memoryview, ...]


class Entry(NamedTuple):
    """An inode as the kernel sees it. Times are Unix times in nanoseconds. Inode 0: the name is absent."""

    inode: int
    mode: int = 0  # with the bits of the type
    nlink: int = 1
    uid: int = 0
    gid: int = 0
    rdev: int = 0
    size: int = 0  # bytes
    blocks: int = 0  # of 512 bytes
    block_bytes: int = 4096
    atime_ns: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0
    birth_ns: int = 0  # 0: not known
    name_s: float = 0.0  # how long the kernel may cache the name ...
    attributes_s: float = 0.0  # ... and the attributes
    generation: int = 0


class PreparedEntry(NamedTuple):
    """A packed entry without its time of validity, which lies between the two parts."""

    node: bytes
    attributes: bytes


@dataclass(frozen=True, slots=True)
class Opened:
    handle: int
    flags: OpenFlag = NO_FLAGS


@dataclass(frozen=True, slots=True)
class Space:
    block_bytes: int
    blocks: int
    free: int
    available: int
    inodes: int
    free_inodes: int
    name_bytes: int = 255


def nothing(result: None) -> Parts:
    return ()


def plain(result: bytes | bytearray | memoryview) -> Parts:
    return (result,)


def device(number: int) -> int:
    """The device number in the kernel's 32 bits: the low bits of what makedev() returns."""
    return number & _DEVICE


def packed(entry: Entry) -> bytes:
    # Unpacked and packed in one step each, because this is called for every lookup.
    (inode, mode, nlink, uid, gid, rdev, size, blocks, block_bytes, atime_ns, mtime_ns, ctime_ns, _,
     name_s, attributes_s, generation) = entry  # fmt: skip
    whole_s, attributes_whole_s = int(name_s), int(attributes_s)
    return _pack_entry(
        inode, generation, whole_s, attributes_whole_s,
        int((name_s - whole_s) * _NS), int((attributes_s - attributes_whole_s) * _NS),
        inode, size, blocks, atime_ns // _NS & _UNSIGNED, mtime_ns // _NS & _UNSIGNED, ctime_ns // _NS & _UNSIGNED,
        atime_ns % _NS, mtime_ns % _NS, ctime_ns % _NS, mode, nlink, uid, gid, rdev & _DEVICE, block_bytes, 0,
    )  # fmt: skip


def prepared(entry: Entry) -> PreparedEntry:
    whole = packed(entry)
    return PreparedEntry(whole[:_VALID_AT], whole[_ATTRIBUTES_AT:])


def valid(seconds: float) -> bytes:
    """The packed time for which the kernel may cache a name and its attributes."""
    whole = int(seconds)
    rest_ns = int((seconds - whole) * _NS)
    return _VALID.pack(whole, whole, rest_ns, rest_ns)


def entry(result: Entry) -> Parts:
    return (packed(result),)


def attributes(result: Entry) -> Parts:
    seconds = int(result.attributes_s)
    rest_ns = int((result.attributes_s - seconds) * _NS)
    return (_GETATTR.pack(seconds, rest_ns, 0) + packed(result)[_ATTRIBUTES_AT:],)


def statx(result: Entry) -> Parts:
    """The attributes for statx(2), with the time of birth."""
    seconds = int(result.attributes_s)
    return (
        _STATX.pack(
            seconds, int((result.attributes_s - seconds) * _NS), 0,
            _BASIC_STATS | (_BIRTH_TIME if result.birth_ns else 0), result.block_bytes, 0,
            result.nlink, result.uid, result.gid, result.mode, result.inode, result.size, result.blocks, 0,
            *divmod(result.atime_ns, _NS), *divmod(result.birth_ns, _NS),
            *divmod(result.ctime_ns, _NS), *divmod(result.mtime_ns, _NS),
            os.major(result.rdev), os.minor(result.rdev), 0, 0,
        ),
    )  # fmt: skip


def opened(result: Opened) -> Parts:
    return (_OPEN.pack(result.handle, result.flags, 0),)


def created(result: tuple[Entry, Opened]) -> Parts:
    return (packed(result[0]), *opened(result[1]))


def written(size: int) -> Parts:
    return (_WRITE.pack(size, 0),)


def space(result: Space) -> Parts:
    return (
        _STATFS.pack(
            result.blocks, result.free, result.available, result.inodes, result.free_inodes,
            result.block_bytes, result.name_bytes, result.block_bytes, 0,
        ),
    )  # fmt: skip


def size(result: int) -> Parts:
    """The size of an extended attribute, for a program that asks before it has a buffer."""
    return (_SIZE.pack(result, 0),)


def names(result: Iterable[bytes]) -> Parts:
    return (b"".join(name + b"\0" for name in result),)


def lock(result: Lock) -> Parts:
    return (_LOCK.pack(result.start, result.end, result.type, result.pid),)


def offset(result: int) -> Parts:
    return (_LSEEK.pack(result),)


class Page:
    """Entries of a directory, as many as the kernel has room for. They have attributes if the kernel has asked for
    them (`plus`)."""

    def __init__(self, room: int, *, plus: bool) -> None:
        self.plus = plus
        self._room = room
        self._parts: list[bytes | memoryview] = []

    def add(self, name: bytes, following: int, inode: int, mode: int, entry: Entry | None = None) -> bool:
        """Add an entry; False if there is no room for it. `following` is the position behind it, where the next request
        goes on. Without `entry` the kernel gets only what it needs for the name.
        """
        head = DIRENT.pack(inode, following, len(name), mode >> 12 & 0o17)
        dirent = head + name + bytes(-len(name) % 8)
        size = len(dirent) + (_ENTRY.size if self.plus else 0)
        if size > self._room:
            return False
        self._room -= size
        if self.plus:
            self._parts.append(_NO_ENTRY if entry is None else packed(entry))
        self._parts.append(dirent)
        return True

    def fill(self, dirents: Dirents, number: int, known: PackedEntries | None = None) -> int:
        """Add entries from that number on. Returns for how many there was room. `known` returns their attributes."""
        if not self.plus:
            part, count = dirents.part(number, self._room)
            self._room -= len(part)
            self._parts.append(part)
            return count
        parts = dirents.each(number, self._room, _ENTRY.size)
        entries = repeat(None) if known is None else known(dirents, number, len(parts))
        for entry, part in zip(entries, parts, strict=False):
            self._parts += (entry or _NO_ENTRY, part)
        self._room -= sum(map(len, parts)) + len(parts) * _ENTRY.size
        return len(parts)

    @property
    def parts(self) -> Parts:
        return (b"".join(self._parts),)


def page(result: Page) -> Parts:
    return result.parts


# ---- notifications ----


def attributes_changed(inode: int) -> bytes:
    """The kernel drops the attributes of the inode, and asks for them when it needs them next. It takes this
    notification without waiting for anything."""
    return _invalidate(inode, -1)  # a negative offset: no pages


def content_changed(inode: int) -> bytes:
    """The kernel drops the attributes and the cached pages of the inode. It waits for pages that are being read or
    written, so requests must be answered until it has taken this notification."""
    return _invalidate(inode, 0)


def _invalidate(inode: int, offset: int) -> bytes:
    body = _INVAL_INODE.pack(inode, offset, 0)  # the length 0: to the end
    return HEADER.pack(HEADER.size + len(body), protocol.NOTIFY_INVAL_INODE, 0) + body
