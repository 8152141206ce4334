"""Inodes and directory entries as users see them."""

import stat as _stat
from dataclasses import dataclass

from threefs import layout as _layout
from threefs.errors import InvalidArgument
from threefs.layout import FileLayout
from threefs.wire import meta_pb2 as pb
from threefs_client import paths

_KINDS = {
    pb.FILE: "file",
    pb.DIRECTORY: "directory",
    pb.SYMLINK: "symlink",
    pb.FIFO: "fifo",
    pb.SOCKET: "socket",
    pb.CHARACTER_DEVICE: "character device",
    pb.BLOCK_DEVICE: "block device",
}
_TYPE_BITS = {
    "file": _stat.S_IFREG,
    "directory": _stat.S_IFDIR,
    "symlink": _stat.S_IFLNK,
    "fifo": _stat.S_IFIFO,
    "socket": _stat.S_IFSOCK,
    "character device": _stat.S_IFCHR,
    "block device": _stat.S_IFBLK,
}


class Attributes:
    """Attributes of a file, directory, symbolic link or another kind of inode. Times are Unix times in nanoseconds.

    Each value is decoded when it is read, because a program that lists thousands of names reads few values of each.
    """

    __slots__ = ("_inode",)

    def __init__(self, inode: pb.Inode) -> None:
        self._inode = inode

    @property
    def inode(self) -> int:
        return self._inode.inode

    @property
    def kind(self) -> str:
        """One of "file", "directory", "symlink", "fifo", "socket", "character device" or "block device"."""
        return _KINDS[self._inode.type]

    @property
    def mode(self) -> int:
        """Permission bits only; see st_mode."""
        return self._inode.mode

    @property
    def uid(self) -> int:
        return self._inode.uid

    @property
    def gid(self) -> int:
        return self._inode.gid

    @property
    def nlink(self) -> int:
        return self._inode.nlink

    @property
    def length(self) -> int:
        """In bytes; for a symbolic link the length of its target."""
        return len(self._inode.target) if self._inode.type == pb.SYMLINK else self._inode.length

    @property
    def atime_ns(self) -> int:
        return self._inode.atime_ns

    @property
    def mtime_ns(self) -> int:
        return self._inode.mtime_ns

    @property
    def ctime_ns(self) -> int:
        return self._inode.ctime_ns

    @property
    def birth_ns(self) -> int:
        return self._inode.birth_ns

    @property
    def change(self) -> int:
        """Another number after every change that a reader could see, except of the access time."""
        return self._inode.change

    @property
    def layout(self) -> FileLayout | None:
        """Of a file."""
        return _layout.from_wire(self._inode.layout) if self._inode.type == pb.FILE else None

    @property
    def target(self) -> str:
        """Of a symbolic link."""
        return paths.decode(self._inode.target)

    @property
    def rdev(self) -> int:
        """Of a device: its number."""
        return self._inode.rdev

    @property
    def trash_s(self) -> int | None:
        """Of a directory: its own trash time in seconds, None if it inherits one."""
        return self._inode.trash_s if self._inode.HasField("trash_s") else None

    @property
    def is_file(self) -> bool:
        return self._inode.type == pb.FILE

    @property
    def is_directory(self) -> bool:
        return self._inode.type == pb.DIRECTORY

    @property
    def is_symlink(self) -> bool:
        return self._inode.type == pb.SYMLINK

    @property
    def st_mode(self) -> int:
        """As in os.stat_result: with the bits of the type."""
        return self.mode | _TYPE_BITS[self.kind]

    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in _NAMES)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Attributes) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in zip(_NAMES, self._values(), strict=True))
        return f"Attributes({', '.join(shown)})"

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickled, (self._inode.SerializeToString(),)


_NAMES = (
    "inode",
    "kind",
    "mode",
    "uid",
    "gid",
    "nlink",
    "length",
    "atime_ns",
    "mtime_ns",
    "ctime_ns",
    "birth_ns",
    "layout",
    "target",
    "rdev",
    "trash_s",
)


def _unpickled(inode: bytes) -> Attributes:
    return Attributes(pb.Inode.FromString(inode))


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a directory."""

    name: str
    inode: int
    kind: str
    attributes: Attributes | None = None

    @property
    def is_directory(self) -> bool:
        return self.kind == "directory"


@dataclass(frozen=True, slots=True)
class Usage:
    """Sums over a tree. A file with several names in it counts once."""

    files: int = 0
    directories: int = 0
    symlinks: int = 0
    length: int = 0  # bytes, one copy


@dataclass(frozen=True, slots=True)
class Space:
    """Space of the whole cluster, in bytes of the disks: a stored byte takes `replicas` of them."""

    capacity_bytes: int
    used_bytes: int
    free_bytes: int
    inodes: int  # an estimate
    replicas: int


def type_of(mode: int) -> pb.InodeType:
    """The type in the bits of a mode; a file if there is none. Raises InvalidArgument."""
    bits = _stat.S_IFMT(mode) or _stat.S_IFREG
    for kind, name in _KINDS.items():
        if _TYPE_BITS[name] == bits:
            return kind
    raise InvalidArgument(f"mode {mode:#o} has no known type")


def of_entry(message: pb.Entry) -> Entry:
    attributes = Attributes(message.attributes) if message.HasField("attributes") else None
    return Entry(paths.decode(message.name), message.inode, _KINDS[message.type], attributes)


def of_space(message: pb.StatFsReply) -> Space:
    return Space(message.capacity_bytes, message.used_bytes, message.free_bytes, message.inodes, message.replicas)
