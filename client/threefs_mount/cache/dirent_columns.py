"""Entries of a directory as columns, and attributes that came along with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from threefs_fuse.replies import Prepared

from threefs_mount.cache.invalidation import CacheKey


class Attributes(NamedTuple):
    """Of all the entries of a directory, in their order."""

    inodes: Sequence[bytes]  # an Inode each, serialized
    asked_s: float  # they were so then, or later
    generation: int  # of what was touched until then


@dataclass(frozen=True, slots=True)
class ListedAttributes:
    """The same, with what they are attributes of."""

    directory: int
    names: bytes  # each ends with a zero byte
    numbers: Sequence[int]
    attributes: Attributes
    packed: Sequence[Prepared | None]  # to the kernel; None: it must ask

    def invalidated(self, keys: set[CacheKey]) -> set[int]:
        """The numbers of those that were touched, or whose names were."""
        if self.directory not in keys:  # else none of its names was
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
    token: int  # as long as the directory has it, its entries are the same; 0: that is not known

    def __len__(self) -> int:
        return len(self.types)

    @property
    def last(self) -> bytes:
        return self.names[self.names.rfind(b"\0", 0, -1) + 1 : -1]

    def up_to(self, last: bytes, most: int) -> "DirentPage":
        """Those that are not behind a name, at most so many."""
        found = self.names.split(b"\0")[:-1][:most]
        count = sum(name <= last for name in found)
        names = b"".join(name + b"\0" for name in found[:count])
        return DirentPage(names, self.inodes[: 8 * count], self.types[:count], self.more, self.token)

    def and_more(self, other: "DirentPage") -> "DirentPage":
        return DirentPage(
            self.names + other.names, self.inodes + other.inodes, self.types + other.types, other.more, other.token
        )
