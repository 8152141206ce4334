"""What users see of inodes."""

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


@dataclass(frozen=True, slots=True)
class Attributes:
    """Of a file, directory, symbolic link or another kind of inode. Times are Unix times in nanoseconds."""

    inode: int
    kind: str  # "file", "directory", "symlink", "fifo", "socket", "character device" or "block device"
    mode: int  # permission bits only; see st_mode
    uid: int
    gid: int
    nlink: int
    length: int  # bytes
    atime_ns: int
    mtime_ns: int
    ctime_ns: int
    birth_ns: int
    layout: FileLayout | None  # of a file
    target: str  # of a symlink
    rdev: int = 0  # of a device: its number

    @property
    def is_file(self) -> bool:
        return self.kind == "file"

    @property
    def is_directory(self) -> bool:
        return self.kind == "directory"

    @property
    def is_symlink(self) -> bool:
        return self.kind == "symlink"

    @property
    def st_mode(self) -> int:
        """As in os.stat_result: with the bits of the type."""
        return self.mode | _TYPE_BITS[self.kind]


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
    """Sums over a tree. A file with several links below it counts once."""

    files: int = 0
    directories: int = 0
    symlinks: int = 0
    length: int = 0  # bytes, one copy


@dataclass(frozen=True, slots=True)
class Space:
    """Of the whole cluster, in bytes of the disks: a stored byte takes `replicas` of them."""

    capacity_bytes: int
    used_bytes: int
    free_bytes: int
    inodes: int  # an estimate
    replicas: int


def type_of(mode: int) -> pb.InodeType:
    """The type in the bits of a mode; without any it is a file. Raises InvalidArgument."""
    bits = _stat.S_IFMT(mode) or _stat.S_IFREG
    for kind, name in _KINDS.items():
        if _TYPE_BITS[name] == bits:
            return kind
    raise InvalidArgument(f"mode {mode:#o} has no known type")


def of_inode(message: pb.Inode) -> Attributes:
    kind = _KINDS[message.type]
    return Attributes(
        inode=message.inode,
        kind=kind,
        mode=message.mode,
        uid=message.uid,
        gid=message.gid,
        nlink=message.nlink,
        length=len(message.target) if kind == "symlink" else message.length,
        atime_ns=message.atime_ns,
        mtime_ns=message.mtime_ns,
        ctime_ns=message.ctime_ns,
        birth_ns=message.birth_ns,
        layout=_layout.from_wire(message.layout) if kind == "file" else None,
        target=paths.decode(message.target),
        rdev=message.rdev,
    )


def of_entry(message: pb.Entry) -> Entry:
    attributes = of_inode(message.attributes) if message.HasField("attributes") else None
    return Entry(paths.decode(message.name), message.inode, _KINDS[message.type], attributes)


def of_space(message: pb.StatFsReply) -> Space:
    return Space(message.capacity_bytes, message.used_bytes, message.free_bytes, message.inodes, message.replicas)
