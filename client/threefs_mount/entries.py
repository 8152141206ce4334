"""What the kernel is told of inodes."""

import stat
from typing import Any

import pyfuse3

from threefs.wire import meta_pb2 as pb

#: Programs take it as the size of their buffers: few requests for sequential work, and no waste for many small files.
BLOCK_BYTES = 128 << 10
_SECTOR_BYTES = 512
_NAME_BYTES = 255
_UNIT_BYTES = 4096
TYPE_BITS = {
    pb.FILE: stat.S_IFREG,
    pb.DIRECTORY: stat.S_IFDIR,
    pb.SYMLINK: stat.S_IFLNK,
    pb.FIFO: stat.S_IFIFO,
    pb.SOCKET: stat.S_IFSOCK,
    pb.CHARACTER_DEVICE: stat.S_IFCHR,
    pb.BLOCK_DEVICE: stat.S_IFBLK,
}
TYPES = {bits: kind for kind, bits in TYPE_BITS.items()}


def entry(inode: pb.Inode, cache_s: float) -> Any:
    """The kernel may keep it for `cache_s` seconds."""
    shown = pyfuse3.EntryAttributes()
    length = len(inode.target) if inode.type == pb.SYMLINK else inode.length
    shown.st_ino = inode.inode
    shown.st_mode = TYPE_BITS[inode.type] | inode.mode
    shown.st_nlink = inode.nlink
    shown.st_uid = inode.uid
    shown.st_gid = inode.gid
    shown.st_rdev = inode.rdev
    shown.st_size = length
    shown.st_blocks = (length + _SECTOR_BYTES - 1) // _SECTOR_BYTES
    shown.st_blksize = BLOCK_BYTES
    shown.st_atime_ns = inode.atime_ns
    shown.st_mtime_ns = inode.mtime_ns
    shown.st_ctime_ns = inode.ctime_ns
    shown.entry_timeout = shown.attr_timeout = cache_s
    return shown


def absent() -> Any:
    """Nothing has that name, for now: the kernel asks again each time."""
    shown = pyfuse3.EntryAttributes()
    shown.st_ino = 0
    shown.entry_timeout = shown.attr_timeout = 0
    return shown


def space(reply: pb.StatFsReply) -> Any:
    """In bytes of content: a stored byte takes as many bytes of the disks as it has replicas."""
    shown = pyfuse3.StatvfsData()
    unit = _UNIT_BYTES * max(1, reply.replicas)
    shown.f_bsize = shown.f_frsize = _UNIT_BYTES
    shown.f_blocks = reply.capacity_bytes // unit
    shown.f_bfree = shown.f_bavail = reply.free_bytes // unit
    shown.f_ffree = shown.f_favail = reply.free_bytes // unit
    shown.f_files = reply.inodes + shown.f_ffree
    shown.f_namemax = _NAME_BYTES
    return shown
