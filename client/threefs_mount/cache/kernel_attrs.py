"""What the kernel was told of inodes, for as long as it may keep it. No I/O happens here."""

import math
from collections.abc import Iterable
from itertools import repeat
from typing import NamedTuple, TypeAlias

from threefs.bounded_dict import BoundedDict
from threefs.wire import meta_pb2 as pb

#: Bounds the memory. Of an inode that is not among the last so many, nothing is known.
MOST_INODES = 65_536
_ACLS = {b"system.posix_acl_access": 1, b"system.posix_acl_default": 2}
_OTHERS = 4
_ALL = 7
_NO_CHANGE = -1


class _Told(NamedTuple):
    change: int
    until: float
    has: int  # which kinds of extended attributes
    moves: int | None  # that it had when it was told under a name; None: that was too long ago


#: An inode, serialized, and until when. Of those of a listing hardly any is asked about later.
_Unread: TypeAlias = tuple[bytes, float]

_made = tuple.__new__  # quicker than the constructor: one for every name that is looked up


class KernelAttrCache:
    """`cache_s` is how long the kernel may answer for names and attributes without asking."""

    def __init__(self, cache_s: float) -> None:
        self._cache_s = cache_s
        self._inodes = BoundedDict[int, _Told | _Unread](MOST_INODES)

    def note(self, inode: pb.Inode, now_s: float, *, named: bool = True) -> None:
        """It is told now, under a name, or only its attributes."""
        number = inode.inode
        moves = inode.moves if named else self.moves(number)
        self._inodes.put(number, _read(inode, now_s + self._cache_s, moves))

    def note_all(self, numbers: Iterable[int], inodes: Iterable[bytes], now_s: float) -> None:
        """The same for those of a listing, which are serialized."""
        self._inodes.update(zip(numbers, zip(inodes, repeat(now_s + self._cache_s)), strict=False))
        while len(self._inodes) > MOST_INODES:
            self._inodes.popitem(last=False)

    def forget(self, inode: int) -> None:
        """Something of it has changed, but not where it is."""
        told = self._of(inode)
        if told is not None:
            self._inodes[inode] = _made(_Told, (_NO_CHANGE, -math.inf, _ALL, told.moves))

    def moves(self, inode: int) -> int | None:
        """How often it had moved when the kernel was told what name it has. None if that is not known."""
        told = self._of(inode)
        return None if told is None else told.moves

    def moved(self, inode: pb.Inode) -> None:
        """This mount has moved it, so the kernel knows of that, if of all before."""
        told = self._of(inode.inode)
        if told is not None and told.moves == inode.moves - 1:
            self._inodes[inode.inode] = told._replace(moves=inode.moves)

    def is_news(self, inode: pb.Inode) -> bool:
        """Whether the kernel may believe other attributes than these."""
        told = self._of(inode.inode)
        return told is None or told.change != inode.change

    def lacks(self, inode: int, name: bytes, now_s: float) -> bool:
        """Whether it is known that it has no extended attribute of that name.

        Programs that list a directory ask for some of every file, and few files have any.
        """
        told = self._of(inode)
        return told is not None and now_s < told.until and not told.has & _ACLS.get(name, _OTHERS)

    def _of(self, inode: int) -> _Told | None:
        told = self._inodes.get(inode)
        if told is None or isinstance(told, _Told):
            return told
        body, until = told
        found = pb.Inode.FromString(body)
        self._inodes[inode] = read = _read(found, until, found.moves)
        return read


def _read(inode: pb.Inode, until: float, moves: int | None) -> _Told:
    has = _OTHERS if inode.xattr_bytes else 0
    if inode.HasField("access_acl"):
        has |= 1
    if inode.HasField("default_acl"):
        has |= 2
    return _made(_Told, (inode.change, until, has, moves))
