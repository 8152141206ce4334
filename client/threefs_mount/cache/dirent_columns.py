"""Entries of a directory as columns, and attributes that came with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from threefs_fuse.replies import PreparedEntry

from threefs_mount.cache.invalidation import CacheKey


class Attributes(NamedTuple):
    """The attributes of all entries of a directory, in their order."""

    inodes: Sequence[bytes]  # serialized inodes
    asked_s: float  # when the question was sent
    generation: int  # of the invalidations, at that time


@dataclass(frozen=True, slots=True)
class ListedAttributes:
    """The same, with the entries that have these attributes."""

    directory: int
    names: bytes  # each ends with a zero byte
    numbers: Sequence[int]
    attributes: Attributes
    packed: Sequence[PreparedEntry | None]  # for the kernel; None: it must ask

    def invalidated(self, keys: set[CacheKey]) -> set[int]:
        """The numbers of the inodes that were invalidated, or whose names were."""
        if self.directory not in keys:  # else no name in it was invalidated
            return set(filter(keys.__contains__, self.numbers))
        rows = zip(self.numbers, self.names.split(b"\0"), strict=False)
        return {number for number, name in rows if number in keys or (self.directory, name) in keys}


@dataclass(frozen=True, slots=True)
class DirentPage:
    """A page of a directory."""

    names: bytes  # each ends with a zero byte
    inodes: bytes  # 8 bytes each, little-endian
    types: bytes  # 1 byte each, as in d_type
    more: bool
    token: int  # the entries are the same as long as the directory has this token; 0: not known

    def __len__(self) -> int:
        return len(self.types)

    @property
    def last(self) -> bytes:
        return self.names[self.names.rfind(b"\0", 0, -1) + 1 : -1]

    def up_to(self, last: bytes, limit: int) -> "DirentPage":
        """The entries up to the name `last`, at most `limit` of them."""
        found = self.names.split(b"\0")[:-1][:limit]
        count = sum(name <= last for name in found)
        names = b"".join(name + b"\0" for name in found[:count])
        return DirentPage(names, self.inodes[: 8 * count], self.types[:count], self.more, self.token)

    def joined(self, other: "DirentPage") -> "DirentPage":
        """The entries of this page and of the one behind it."""
        return DirentPage(
            self.names + other.names, self.inodes + other.inodes, self.types + other.types, other.more, other.token
        )
