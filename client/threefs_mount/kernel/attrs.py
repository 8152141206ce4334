"""Attributes of inodes between the terms of the kernel and those of the metadata service."""

import stat
from collections.abc import Iterable

from threefs_fuse import replies
from threefs_fuse.replies import Entry, PreparedEntry, Space
from threefs_fuse.requests import Setting

from threefs.errors import ProtocolError
from threefs.wire import meta_pb2 as pb
from threefs_mount.cache.dirent_columns import DirentPage

#: Programs use it as the size of their buffers: few requests for sequential work, no waste for many small files.
BLOCK_BYTES = 128 << 10
_SECTOR_BYTES = 512
_GENERATION = 0  # inode numbers are never reused
_NAME_BYTES = 255
_UNIT_BYTES = 4096
_PERMISSIONS = 0o7777
_NO_SETTING = Setting()
TYPE_BITS = {
    pb.FILE: stat.S_IFREG,
    pb.DIRECTORY: stat.S_IFDIR,
    pb.SYMLINK: stat.S_IFLNK,
    pb.FIFO: stat.S_IFIFO,
    pb.SOCKET: stat.S_IFSOCK,
    pb.CHARACTER_DEVICE: stat.S_IFCHR,
    pb.BLOCK_DEVICE: stat.S_IFBLK,
}
#: By the type of an inode, for bytes.translate.
_DIRENT_TYPES = bytes(sum(bits >> 12 for one, bits in TYPE_BITS.items() if one == kind) for kind in range(256))
TYPES = {bits: kind for kind, bits in TYPE_BITS.items()}
#: The name is absent. The kernel does not cache that, so it asks again each time.
ABSENT = Entry(0)
_SYMLINK = pb.SYMLINK
_new_tuple = tuple.__new__  # quicker than the constructor: one for every lookup


def entry(inode: pb.Inode, cache_s: float) -> Entry:
    """The entry of an inode, which the kernel may cache for `cache_s` seconds."""
    kind = inode.type
    length = len(inode.target) if kind == _SYMLINK else inode.length
    return _new_tuple(
        Entry,
        (
            inode.inode,
            TYPE_BITS[kind] | inode.mode,
            inode.nlink,
            inode.uid,
            inode.gid,
            inode.rdev,
            length,
            (length + _SECTOR_BYTES - 1) // _SECTOR_BYTES,
            BLOCK_BYTES,
            inode.atime_ns,
            inode.mtime_ns,
            inode.ctime_ns,
            inode.birth_ns,
            cache_s,
            cache_s,
            _GENERATION,
        ),
    )


def dirent_page(reply: pb.ListNamesReply) -> DirentPage:
    """The columns of a directory as the kernel needs them. Raises ProtocolError."""
    count = len(reply.types)
    complete = reply.names.endswith(b"\0") if count else not reply.names
    if (
        not complete
        or reply.names.count(b"\0") != count
        or len(reply.inodes) != 8 * count
        or b"\0\0" in b"\0" + reply.names
    ):
        raise ProtocolError("the columns of a directory are not of the same length")
    types = reply.types.translate(_DIRENT_TYPES)
    return DirentPage(reply.names, reply.inodes, types, reply.more, reply.token)


def prepared_entries(inodes: Iterable[bytes]) -> list[PreparedEntry | None]:
    """The entries of serialized inodes, packed but for their time of validity. None for those that are not cached."""
    parsed = map(pb.Inode.FromString, inodes)
    return [replies.prepared(entry(inode, 0)) if has_one_name(inode) else None for inode in parsed]


def has_one_name(inode: pb.Inode) -> bool:
    """Whether no other name leads to the inode, so that only a change under this name changes its attributes."""
    return inode.nlink == 1 or (inode.type == pb.DIRECTORY and inode.nlink > 0)


def statfs(reply: pb.StatFsReply) -> Space:
    """The space in bytes of content: a byte of content takes one byte of the disks per replica."""
    unit = _UNIT_BYTES * max(1, reply.replicas)
    free = reply.free_bytes // unit
    return Space(
        block_bytes=_UNIT_BYTES,
        blocks=reply.capacity_bytes // unit,
        free=free,
        available=free,
        inodes=reply.inodes + free,
        free_inodes=free,
        name_bytes=_NAME_BYTES,
    )


def setattr_request(place: pb.Place, setting: Setting) -> pb.SetAttrRequest | None:
    """The attributes that the metadata service is asked to set. None if there is at most a length to set, which is
    another request.

    A setting without any attribute drops the privileges of the file (set-user-id, set-group-id). The kernel sends it
    for a chown(2) without a new owner, and before fallocate(2) of a file with set-user-id.
    """
    request = pb.SetAttrRequest(
        place=place,
        mode=None if setting.mode is None else setting.mode & _PERMISSIONS,
        uid=setting.uid,
        gid=setting.gid,
        atime_ns=setting.atime_ns,
        mtime_ns=setting.mtime_ns,
        atime_now=setting.atime_now,
        mtime_now=setting.mtime_now,
        drop_privileges=setting == _NO_SETTING,
    )
    return request if len(request.ListFields()) > 1 else None
