"""Entries of a directory as the kernel takes them, packed once for all who read them."""

import bisect
from struct import Struct

import numpy as np

#: Inode, position behind it, length of the name, type; then the name, and zeros up to a multiple of 8.
HEAD = Struct("=QQII")
_WORD_BYTES = 8


class Dirents:
    """A row of entries. Names have no zero bytes, and are not empty."""

    def __init__(self, names: bytes, inodes: bytes, types: bytes, following: int) -> None:
        """As columns: each name ends with a zero byte, an inode takes 8 bytes (little-endian), a type 1, as in d_type.

        `following` is the position behind the first.
        """
        text = np.frombuffer(names, np.uint8)
        stops = np.flatnonzero(text == 0)
        starts = np.concatenate((np.zeros(1, stops.dtype), stops[:-1] + 1)) if len(stops) else stops
        lengths = stops - starts
        sizes = HEAD.size + lengths + -lengths % _WORD_BYTES
        ends = np.cumsum(sizes)
        self._ends = ends.data  # quicker than an array to look single numbers up in
        begins = ends - sizes
        # Names first: the zero byte behind one may be where the next entry begins, or behind the last.
        packed = np.zeros((int(ends[-1]) if len(stops) else 0) + _WORD_BYTES, np.uint8)
        packed[np.arange(len(text)) + np.repeat(begins + HEAD.size - starts, lengths + 1)] = text
        words, halves, heads = packed.view(np.uint64), packed.view(np.uint32), begins // _WORD_BYTES
        words[heads] = np.frombuffer(inodes, "<u8")
        words[heads + 1] = following + np.arange(len(stops), dtype=np.uint64)
        halves[2 * heads + 4] = lengths
        halves[2 * heads + 5] = np.frombuffer(types, np.uint8)
        self.packed = packed.data[:-_WORD_BYTES]

    def __len__(self) -> int:
        return len(self._ends)

    def begin(self, number: int) -> int:
        """Where that entry begins."""
        return self._ends[number - 1] if number else 0

    def part(self, number: int, room: int) -> tuple[memoryview, int]:
        """The entries from that number on for which there is room, and how many they are."""
        begin = self.begin(number)
        count = bisect.bisect_right(self._ends, begin + room) - number
        return self.packed[begin : self.begin(number + count)], count

    def spaced(self, number: int, room: int, gap: int) -> tuple[memoryview, int]:
        """The same with so many zero bytes before each, a multiple of 8."""
        begin = self.begin(number)
        gaps = np.arange(gap, room + 1, gap)
        ends = np.frombuffer(self._ends, np.int64)[number : number + len(gaps)] - begin
        wide = ends + gaps[: len(ends)]
        count = int(wide.searchsorted(room, "right"))
        if not count:
            return memoryview(b""), 0
        words = np.frombuffer(self.packed[begin : begin + int(ends[count - 1])], np.uint64)
        lengths = ends[:count].copy()
        lengths[1:] -= ends[: count - 1]
        before = np.repeat(gaps[:count] // _WORD_BYTES, lengths // _WORD_BYTES)
        spaced = np.zeros(int(wide[count - 1]) // _WORD_BYTES, np.uint64)
        spaced[np.arange(len(words)) + before] = words
        return spaced.view(np.uint8).data, count
