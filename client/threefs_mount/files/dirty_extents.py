"""Bytes of one file that programs have written and that are not sent yet. No I/O happens here."""

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

    @property
    def pieces(self) -> int:
        return len(self._extents)

    def add(self, offset: int, data: bytes | memoryview) -> int:
        """Keep a copy of `data`. Returns by how many bytes the extents have grown."""
        before = self.size
        at = 0
        while at < len(data):
            room = self._chunk_bytes - (offset + at) % self._chunk_bytes
            part = data if room >= len(data) and not at else data[at : at + room]
            self._add(offset + at, part)
            at += len(part)
        self.end = max(self.end, offset + len(data))
        return self.size - before

    def _add(self, offset: int, part: bytes | memoryview) -> None:
        if self._extents:
            start, last = self._extents[-1]
            at = offset - start
            if 0 <= at <= len(last) and offset % self._chunk_bytes:
                if not isinstance(last, bytearray):
                    last = bytearray(last)
                    self._extents[-1] = (start, last)
                before = len(last)
                last[at : at + len(part)] = part
                self.size += len(last) - before
                return
        self._extents.append((offset, bytes(part)))
        self.size += len(part)

    def copies_of(self, offset: int, length: int) -> list[Extent]:
        """Copies of the bytes of a range, in the order of the writes."""
        return [(start, memoryview(bytes(part))) for start, part in clip(self._extents, offset, length)]

    def drain(self) -> list[Extent]:
        """Return all extents, and keep none."""
        taken, self._extents = self._extents, []
        self.size = self.end = 0
        return [(offset, memoryview(data)) for offset, data in taken]


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
