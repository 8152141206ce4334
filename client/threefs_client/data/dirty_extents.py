"""Bytes of one file that were written and are not sent yet. No I/O happens here."""

from collections.abc import Iterable
from operator import itemgetter

Extent = tuple[int, memoryview]


class DirtyExtents:
    """Extents in the order of the writes. None of them crosses a chunk boundary."""

    def __init__(self, chunk_bytes: int) -> None:
        self._chunk_bytes = chunk_bytes
        self._extents: list[tuple[int, bytes | bytearray]] = []
        self.size = 0  # bytes
        self.end = 0  # the file offset behind the last one
        self._filling = -1  # number of the chunk that the newest write has not filled up to its end; -1: there is none
        self._filling_bytes = 0  # bytes in it; without those that were written before another chunk came between

    @property
    def pieces(self) -> int:
        return len(self._extents)

    @property
    def full_bytes(self) -> int:
        """About so many bytes are in chunks that the newest write does not fill any more."""
        return self.size - self._filling_bytes

    def add(self, offset: int, data: bytes | bytearray | memoryview) -> int:
        """Keep the bytes. Returns by how many bytes the extents have grown. A bytearray is taken over: the caller must
        not change it afterwards. A memoryview is copied."""
        before = self.size
        at = 0
        while at < len(data):
            room = self._chunk_bytes - (offset + at) % self._chunk_bytes
            part = data if room >= len(data) and not at else data[at : at + room]
            self._add(offset + at, part)
            at += len(part)
        self.end = max(self.end, offset + len(data))
        return self.size - before

    def _add(self, offset: int, part: bytes | bytearray | memoryview) -> None:
        before = self.size
        if not self._extend_last(offset, part):
            self._extents.append((offset, bytes(part) if isinstance(part, memoryview) else part))
            self.size += len(part)
        self._record_filling(offset, len(part), self.size - before)

    def _extend_last(self, offset: int, part: bytes | bytearray | memoryview) -> bool:
        """Write the bytes over or directly behind the newest extent, if they touch it within one chunk."""
        if not self._extents:
            return False
        start, last = self._extents[-1]
        at = offset - start
        if not (0 <= at <= len(last) and offset % self._chunk_bytes):
            return False
        if not isinstance(last, bytearray):
            last = bytearray(last)
            self._extents[-1] = (start, last)
        before = len(last)
        last[at : at + len(part)] = part
        self.size += len(last) - before
        return True

    def _record_filling(self, offset: int, length: int, grown: int) -> None:
        number = offset // self._chunk_bytes
        if (offset + length) % self._chunk_bytes == 0:
            self._filling, self._filling_bytes = -1, 0
        elif number == self._filling:
            self._filling_bytes += grown
        else:
            self._filling = number
            self._filling_bytes = len(self._extents[-1][1])

    def _range(self, number: int) -> tuple[int, int]:
        return number * self._chunk_bytes, self._chunk_bytes

    def copies_of(self, offset: int, length: int) -> list[Extent]:
        """Copies of the bytes of a range, in the order of the writes."""
        return [(start, memoryview(bytes(part))) for start, part in clip(self._extents, offset, length)]

    def drain(self) -> list[Extent]:
        """Return all extents, and keep none."""
        taken, self._extents = self._extents, []
        self._filling, self._filling_bytes = -1, 0
        self.size = self.end = 0
        return [(offset, memoryview(data)) for offset, data in taken]

    def drain_full(self) -> list[Extent]:
        """Return the extents of all chunks but the one that the newest write is just filling: that chunk is cheaper to
        send once, when it is full."""
        if self._filling < 0:
            return self.drain()
        start, length = self._range(self._filling)
        kept = [extent for extent in self._extents if start <= extent[0] < start + length]
        taken = [(offset, memoryview(data)) for offset, data in self._extents if not start <= offset < start + length]
        self._extents = kept
        self.size = self._filling_bytes = sum(len(data) for _, data in kept)
        self.end = max((offset + len(data) for offset, data in kept), default=0)
        return taken

    def put_back(self, extents: list[Extent]) -> None:
        """Keep drained extents again, below everything that was added since."""
        self._extents = [(offset, bytes(data)) for offset, data in extents] + self._extents
        self.size += sum(len(data) for _, data in extents)
        self.end = max([self.end, *(offset + len(data) for offset, data in extents)])


def clip(extents: Iterable[tuple[int, bytes | bytearray | memoryview]], offset: int, length: int) -> list[Extent]:
    """The parts of extents that lie in a range, not copied."""
    end = offset + length
    return [
        (max(start, offset), memoryview(data)[max(0, offset - start) : end - start])
        for start, data in extents
        if start < end and offset < start + len(data)
    ]


def covers(extents: Iterable[Extent], offset: int, length: int) -> bool:
    """Whether the extents have all bytes of a range."""
    at = offset
    for start, data in sorted(extents, key=itemgetter(0)):
        if start > at:
            return False
        at = max(at, start + len(data))
    return at >= offset + length


def overlay(extents: Iterable[Extent], offset: int, view: memoryview) -> None:
    """Copy extents of a range over the view of that range, in their order."""
    for start, data in extents:
        view[start - offset : start - offset + len(data)] = data
