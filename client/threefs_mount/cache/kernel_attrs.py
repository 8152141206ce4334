"""What the kernel was told of inodes, for as long as it may keep it. No I/O happens here."""

import math
from collections.abc import Iterable
from itertools import repeat
from typing import NamedTuple, TypeAlias

from threefs.bounded_dict import BoundedDict
from threefs.wire import meta_pb2 as pb

#: Bounds the memory. Of an inode that is not among the last so many, nothing is known.
MAX_INODES = 65_536
_ACLS = {b"system.posix_acl_access": 1, b"system.posix_acl_default": 2}
_OTHERS = 4
_ALL = 7
_NO_CHANGE = -1


class _KernelAttr(NamedTuple):
    change: int
    expires_s: float
    xattr_kinds: int  # which kinds of extended attributes
    moves: int | None  # that it had when it was told under a name; None: that was too long ago


#: An inode, serialized, and until when. Of those of a listing hardly any is asked about later.
_Serialized: TypeAlias = tuple[bytes, float]

_new_tuple = tuple.__new__  # quicker than the constructor: one for every name that is looked up


class KernelAttrCache:
    """`cache_s` is how long the kernel may answer for names and attributes without asking."""

    def __init__(self, cache_s: float) -> None:
        self._cache_s = cache_s
        self._inodes = BoundedDict[int, _KernelAttr | _Serialized](MAX_INODES)

    def record(self, inode: pb.Inode, now_s: float, *, named: bool = True) -> None:
        """It is told now, under a name, or only its attributes."""
        number = inode.inode
        moves = inode.moves if named else self.moves(number)
        self._inodes.put(number, _read(inode, now_s + self._cache_s, moves))

    def record_all(self, numbers: Iterable[int], inodes: Iterable[bytes], now_s: float) -> None:
        """The same for those of a listing, which are serialized."""
        self._inodes.update(zip(numbers, zip(inodes, repeat(now_s + self._cache_s)), strict=False))
        while len(self._inodes) > MAX_INODES:
            self._inodes.popitem(last=False)

    def invalidate(self, inode: int) -> None:
        """Something of it has changed, but not where it is."""
        known = self._get(inode)
        if known is not None:
            self._inodes[inode] = _new_tuple(_KernelAttr, (_NO_CHANGE, -math.inf, _ALL, known.moves))

    def moves(self, inode: int) -> int | None:
        """How often it had moved when the kernel was told what name it has. None if that is not known."""
        known = self._get(inode)
        return None if known is None else known.moves

    def record_move(self, inode: pb.Inode) -> None:
        """This mount has moved it, so the kernel knows of that, if of all before."""
        known = self._get(inode.inode)
        if known is not None and known.moves == inode.moves - 1:
            self._inodes[inode.inode] = known._replace(moves=inode.moves)

    def differs(self, inode: pb.Inode) -> bool:
        """Whether the kernel may believe other attributes than these."""
        known = self._get(inode.inode)
        return known is None or known.change != inode.change

    def lacks_xattr(self, inode: int, name: bytes, now_s: float) -> bool:
        """Whether it is known that it has no extended attribute of that name.

        Programs that list a directory ask for some of every file, and few files have any.
        """
        known = self._get(inode)
        return known is not None and now_s < known.expires_s and not known.xattr_kinds & _ACLS.get(name, _OTHERS)

    def _get(self, inode: int) -> _KernelAttr | None:
        known = self._inodes.get(inode)
        if known is None or isinstance(known, _KernelAttr):
            return known
        body, until = known
        found = pb.Inode.FromString(body)
        self._inodes[inode] = read = _read(found, until, found.moves)
        return read


def _read(inode: pb.Inode, until: float, moves: int | None) -> _KernelAttr:
    has = _OTHERS if inode.xattr_bytes else 0
    if inode.HasField("access_acl"):
        has |= 1
    if inode.HasField("default_acl"):
        has |= 2
    return _new_tuple(_KernelAttr, (inode.change, until, has, moves))
