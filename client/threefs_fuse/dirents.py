"""Entries of a directory in the kernel's format, packed once for all programs that read them."""

import bisect
from collections.abc import Sequence
from struct import Struct, unpack

import numpy as np

#: Inode, position behind the entry, length of the name, type. The name follows, and zeros up to a multiple of 8.
HEAD = Struct("=QQII")
_WORD_BYTES = 8
_LENGTH_AT = 16
_length = Struct("=I").unpack_from
#: Up to this many entries are packed one by one. numpy is faster for many. For few it is slower, because its code is
#: rarely in the processor's caches when a directory is listed.
_FEW = 256


class Dirents:
    """A page of entries. Names have no zero bytes, and are not empty."""

    def __init__(self, names: bytes, inodes: bytes, types: bytes, following: int) -> None:
        """The columns: each name ends with a zero byte, an inode takes 8 bytes (little-endian), a type 1 byte, as in
        d_type. `following` is the position behind the first entry.
        """
        pack = _pack_few if len(types) <= _FEW else _pack_many
        self.packed, self._ends = pack(names, inodes, types, following)

    def __len__(self) -> int:
        return len(self._ends)

    def begin(self, number: int) -> int:
        """The byte at which that entry begins."""
        return self._ends[number - 1] if number else 0

    def part(self, number: int, room: int) -> tuple[memoryview, int]:
        """The entries from that number on that fit into `room` bytes, in one piece; and their count."""
        begin = self.begin(number)
        count = bisect.bisect_right(self._ends, begin + room) - number
        return self.packed[begin : self.begin(number + count)], count

    def each(self, number: int, room: int, before: int) -> list[memoryview]:
        """The entries from that number on that fit if `before` other bytes precede each, one by one."""
        packed, at, found = self.packed, self.begin(number), []
        for end in self._ends[number : number + room // (before + HEAD.size)]:
            room -= before + end - at
            if room < 0:
                break
            found.append(packed[at:end])
            at = end
        return found

    def names(self, number: int, count: int) -> list[bytes]:
        """The names of `count` entries from that number on."""
        packed, at, found = self.packed, self.begin(number), []
        for end in self._ends[number : number + count]:
            begin = at + HEAD.size
            found.append(bytes(packed[begin : begin + _length(packed, at + _LENGTH_AT)[0]]))
            at = end
        return found


def _pack_few(names: bytes, inodes: bytes, types: bytes, following: int) -> tuple[memoryview, Sequence[int]]:
    pack, packed, ends = HEAD.pack, bytearray(), []
    numbers = unpack(f"<{len(types)}Q", inodes)
    for position, (name, inode, kind) in enumerate(zip(names.split(b"\0"), numbers, types, strict=False), following):
        packed += pack(inode, position, len(name), kind)
        packed += name
        packed += bytes(-len(name) % _WORD_BYTES)
        ends.append(len(packed))
    return memoryview(packed).toreadonly(), ends


def _pack_many(names: bytes, inodes: bytes, types: bytes, following: int) -> tuple[memoryview, Sequence[int]]:
    text = np.frombuffer(names, np.uint8)
    stops = np.flatnonzero(text == 0)
    starts = np.concatenate((np.zeros(1, stops.dtype), stops[:-1] + 1))
    lengths = stops - starts
    sizes = HEAD.size + lengths + -lengths % _WORD_BYTES
    ends = np.cumsum(sizes)
    begins = ends - sizes
    # Names first: the zero byte behind a name may lie where the next entry begins, or behind the last entry.
    packed = np.zeros(int(ends[-1]) + _WORD_BYTES, np.uint8)
    packed[np.arange(len(text)) + np.repeat(begins + HEAD.size - starts, lengths + 1)] = text
    words, halves, heads = packed.view(np.uint64), packed.view(np.uint32), begins // _WORD_BYTES
    words[heads] = np.frombuffer(inodes, "<u8")
    words[heads + 1] = following + np.arange(len(stops), dtype=np.uint64)
    halves[2 * heads + 4] = lengths
    halves[2 * heads + 5] = np.frombuffer(types, np.uint8)
    return packed.data[:-_WORD_BYTES], ends.data  # a lookup of one number is faster than in an array
