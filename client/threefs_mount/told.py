"""What the kernel was told of inodes, for as long as it may keep it. No I/O happens here."""

from typing import NamedTuple

from threefs.wire import meta_pb2 as pb

#: Bounds the memory. Of an inode that is not among the last so many, nothing is known.
MOST_INODES = 65_536
_ACLS = {b"system.posix_acl_access": 1, b"system.posix_acl_default": 2}
_OTHERS = 4

Version = tuple[int, int, int]


class _Told(NamedTuple):
    version: Version
    until: float
    has: int  # which kinds of extended attributes


_made = tuple.__new__  # quicker than the constructor: one for every name that is looked up


class Told:
    """`cache_s` is how long the kernel may answer for names and attributes without asking."""

    def __init__(self, cache_s: float) -> None:
        self._cache_s = cache_s
        self._inodes: dict[int, _Told] = {}

    def note(self, inode: pb.Inode, now_s: float) -> None:
        """It is told now."""
        has = _OTHERS if inode.xattr_bytes else 0
        if inode.HasField("access_acl"):
            has |= 1
        if inode.HasField("default_acl"):
            has |= 2
        number, inodes = inode.inode, self._inodes
        inodes.pop(number, None)
        inodes[number] = _made(_Told, (_version(inode), now_s + self._cache_s, has))
        if len(inodes) > MOST_INODES:
            del inodes[next(iter(inodes))]

    def forget(self, inode: int) -> None:
        """Something of it has changed."""
        self._inodes.pop(inode, None)

    def is_news(self, inode: pb.Inode) -> bool:
        """Whether the kernel may believe other attributes than these."""
        told = self._inodes.get(inode.inode)
        return told is None or told.version != _version(inode)

    def lacks(self, inode: int, name: bytes, now_s: float) -> bool:
        """Whether it is known that it has no extended attribute of that name.

        Programs that list a directory ask for some of every file, and few files have any.
        """
        told = self._inodes.get(inode)
        return told is not None and now_s < told.until and not told.has & _ACLS.get(name, _OTHERS)


def _version(inode: pb.Inode) -> Version:
    return inode.ctime_ns, inode.mtime_ns, inode.length
