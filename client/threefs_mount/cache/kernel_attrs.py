"""The attributes of inodes that the kernel has got, for as long as it may keep them. No I/O happens here.

The kernel does not take over an answer if it has taken over another one about the same inode since it asked. So of
answers that differ it may have an older one than the last, until that one expires.
"""

from collections.abc import Iterable
from itertools import repeat
from typing import NamedTuple, TypeAlias

from threefs.bounded_dict import BoundedDict
from threefs.wire import meta_pb2 as pb
from threefs_mount.cache.validity import Validity

#: Bounds the memory. Older inodes count as not known.
MAX_INODES = 65_536
_ACL_XATTRS = {b"system.posix_acl_access": 1, b"system.posix_acl_default": 2}
_OTHER_XATTRS = 4
_ALL_XATTRS = 7
_NO_CHANGE = -1


class _KernelAttr(NamedTuple):
    change: int
    asked_s: float
    xattr_kinds: int  # kinds of extended attributes that it has
    moves: int | None  # its count of moves when the kernel got it under a name; None: that was too long ago
    others_until_s: float  # when the last answer of another change expires, which the kernel may have kept
    former_names_until_s: float  # when the last name expires that it has lost by a move of another mount


#: A serialized inode, and when it was asked for. Of the inodes of a listing, few are needed later.
_Serialized: TypeAlias = tuple[bytes, float]

_new_tuple = tuple.__new__  # quicker than the constructor: one for every name that is looked up


def _is_older(inode: pb.Inode, known: "_KernelAttr") -> bool:
    return known.change == _NO_CHANGE or inode.change < known.change


class KernelAttrCache:
    """`validity` is that of the names and attributes which the kernel gets."""

    def __init__(self, validity: Validity) -> None:
        self._validity = validity
        self._inodes = BoundedDict[int, _KernelAttr | _Serialized](MAX_INODES)

    def record(self, inode: pb.Inode, asked_s: float, *, named: bool = True) -> None:
        """The kernel gets the attributes, which were asked for at `asked_s`; under a name if `named`."""
        number = inode.inode
        moves = inode.moves if named else self.moves(number)
        known = self._get(number)
        others_until_s = self._others_until_s(known, inode.change)
        former_names_until_s = self._former_names_until_s(known, moves)
        if known is not None and asked_s < known.asked_s and _is_older(inode, known):
            unknown = (_NO_CHANGE, known.asked_s, _ALL_XATTRS, moves, others_until_s, former_names_until_s)
            self._inodes[number] = _new_tuple(_KernelAttr, unknown)
            return
        if known is not None and known.change == inode.change:
            asked_s = max(asked_s, known.asked_s)
        self._inodes.put(number, _kernel_attr(inode, asked_s, moves, others_until_s, former_names_until_s))

    def _others_until_s(self, known: _KernelAttr | None, change: int) -> float:
        if known is None:
            return 0.0
        if known.change == change:
            return known.others_until_s
        return max(known.others_until_s, self._validity.expiry_s(known.asked_s))

    def _former_names_until_s(self, known: _KernelAttr | None, moves: int | None) -> float:
        if known is None:
            return 0.0
        if known.moves is None or known.moves == moves:
            return known.former_names_until_s
        return max(known.others_until_s, self._validity.expiry_s(known.asked_s))

    def record_all(self, numbers: Iterable[int], inodes: Iterable[bytes], asked_s: float) -> None:
        """The same for the inodes of a listing, which are serialized."""
        listed = dict(zip(numbers, zip(inodes, repeat(asked_s)), strict=False))
        for number in listed.keys() & self._inodes.keys():
            known = self._inodes[number]
            if isinstance(known, _KernelAttr) or known[0] != listed[number][0]:
                self.record(pb.Inode.FromString(listed.pop(number)[0]), asked_s)
        self._inodes.update(listed)
        while len(self._inodes) > MAX_INODES:
            self._inodes.popitem(last=False)

    def invalidate(self, inode: int, now_s: float) -> None:
        """The inode has changed, but was not moved."""
        known = self._get(inode)
        others_until_s = self._others_until_s(known, _NO_CHANGE)
        moves, names_until_s = (None, 0.0) if known is None else (known.moves, known.former_names_until_s)
        unknown = (_NO_CHANGE, now_s, _ALL_XATTRS, moves, others_until_s, names_until_s)
        self._inodes.put(inode, _new_tuple(_KernelAttr, unknown))

    def moves(self, inode: int) -> int | None:
        """The count of moves of the inode when the kernel got its name. None: not known."""
        known = self._get(inode)
        return None if known is None else known.moves

    def record_move(self, inode: pb.Inode) -> None:
        """This mount has moved the inode. The kernel knows of that, if it knew of all moves before."""
        known = self._get(inode.inode)
        if known is not None and known.moves == inode.moves - 1:
            self._inodes[inode.inode] = known._replace(moves=inode.moves)

    def may_have_former_name(self, inode: int, now_s: float) -> bool:
        """Whether the kernel may still have a name of the inode that it has lost. Another mount has moved it, and the
        kernel has got its new name: now the count of moves fits whichever name a program uses."""
        known = self._get(inode)
        return known is not None and now_s < known.former_names_until_s

    def differs(self, inode: pb.Inode, now_s: float) -> bool:
        """Whether the kernel may have other attributes than these."""
        known = self._get(inode.inode)
        return known is None or known.change != inode.change or now_s < known.others_until_s

    def lacks_xattr(self, inode: int, name: bytes, now_s: float) -> bool:
        """Whether the inode surely has no extended attribute of that name.

        Programs that list a directory ask for some extended attributes of every file, and few files have any.
        """
        known = self._get(inode)
        return (
            known is not None
            and self._validity.is_valid(known.asked_s, now_s)
            and not known.xattr_kinds & _ACL_XATTRS.get(name, _OTHER_XATTRS)
        )

    def _get(self, inode: int) -> _KernelAttr | None:
        known = self._inodes.get(inode)
        if known is None or isinstance(known, _KernelAttr):
            return known
        serialized, asked_s = known
        parsed = pb.Inode.FromString(serialized)
        self._inodes[inode] = attr = _kernel_attr(parsed, asked_s, parsed.moves, 0.0, 0.0)
        return attr


def _kernel_attr(
    inode: pb.Inode, asked_s: float, moves: int | None, others_until_s: float, former_names_until_s: float
) -> _KernelAttr:
    kinds = _OTHER_XATTRS if inode.xattr_bytes else 0
    if inode.HasField("access_acl"):
        kinds |= 1
    if inode.HasField("default_acl"):
        kinds |= 2
    known = (inode.change, asked_s, kinds, moves, others_until_s, former_names_until_s)
    return _new_tuple(_KernelAttr, known)
