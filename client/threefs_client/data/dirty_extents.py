"""Bytes of one file that were written and are not sent yet. No I/O happens here.

The bytes of a chunk are kept together, whatever their order and whichever handle they came through: a chunk that all
writers of this client have filled is one extent.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from operator import itemgetter

Data = bytes | bytearray | memoryview
Extent = tuple[int, memoryview]


class _Pieces:
    """The dirty bytes of one chunk."""

    __slots__ = ("offsets", "parts", "size")

    def __init__(self) -> None:
        self.offsets: list[int] = []  # in the file, ascending
        self.parts: list[Data] = []  # no two of them overlap; only a bytearray is changed
        self.size = 0  # bytes

    def add(self, offset: int, part: Data) -> None:
        """Put bytes over what is here. A bytearray is taken over, a memoryview is copied. If there is no memory for
        that, all stays as it is (MemoryError)."""
        at = bisect_right(self.offsets, offset) - 1
        if at < 0 or not self._extend(at, offset, part):
            self.put(offset, bytearray(part) if isinstance(part, memoryview) else part)

    def _extend(self, at: int, offset: int, part: Data) -> bool:
        """Write over a piece that begins before, or directly behind it, if no other piece is touched."""
        begin = offset - self.offsets[at]
        piece = self.parts[at]
        following = self.offsets[at + 1] if at + 1 < len(self.offsets) else offset + len(part)
        if begin > len(piece) or offset + len(part) > following:
            return False
        if not isinstance(piece, bytearray):
            piece = self.parts[at] = bytearray(piece)
        before = len(piece)
        piece[begin : begin + len(part)] = part
        self.size += len(piece) - before
        return True

    def put(self, offset: int, part: Data) -> None:
        """The same, as a piece of its own. It is not copied, so nobody else may change it."""
        end = offset + len(part)
        first, last = self._overlapped(offset, end)
        pieces: list[tuple[int, Data]] = []
        before = 0
        for start, piece in zip(self.offsets[first:last], self.parts[first:last], strict=True):
            before += len(piece)
            if start < offset:
                pieces.append((start, piece[: offset - start]))
            if start + len(piece) > end:
                pieces.append((end, piece[end - start :]))
        pieces.insert(1 if pieces and pieces[0][0] < offset else 0, (offset, part))
        self.offsets[first:last] = [start for start, _ in pieces]
        self.parts[first:last] = [piece for _, piece in pieces]
        self.size += sum(len(piece) for _, piece in pieces) - before

    def _overlapped(self, begin: int, end: int) -> tuple[int, int]:
        """The pieces that have bytes of a range: the first one, and one behind the last."""
        first = bisect_right(self.offsets, begin) - 1
        if first < 0 or self.offsets[first] + len(self.parts[first]) <= begin:
            first += 1
        return first, bisect_left(self.offsets, end, lo=first)

    @property
    def end(self) -> int:
        """0: it is new, and there was no memory for its first bytes."""
        return self.offsets[-1] + len(self.parts[-1]) if self.parts else 0

    def within(self, begin: int, end: int) -> list[Extent]:
        """The bytes of a range, not copied."""
        first, last = self._overlapped(begin, end)
        return clip(zip(self.offsets[first:last], self.parts[first:last], strict=True), begin, end - begin)

    def join(self) -> None:
        """Make one piece of adjacent ones. They stay as they are if there is no memory for that (MemoryError)."""
        offsets: list[int] = []
        parts: list[Data] = []
        first = 0
        for number, (offset, part) in enumerate(zip(self.offsets, self.parts, strict=True), 1):
            if number == len(self.offsets) or self.offsets[number] != offset + len(part):
                run = self.parts[first:number]
                offsets.append(self.offsets[first])
                parts.append(b"".join(run) if len(run) > 1 else run[0])
                first = number
        self.offsets, self.parts = offsets, parts


class DirtyExtents:
    """Extents that do not overlap. None of them crosses a chunk boundary."""

    def __init__(self, chunk_bytes: int, keep_bytes: int = 0) -> None:
        """Of the chunks that are not filled, `drain_ready` keeps those that were written last: `keep_bytes`, or one
        chunk."""
        self._chunk_bytes = chunk_bytes
        self._keep_bytes = keep_bytes
        self._chunks: dict[int, _Pieces] = {}  # by number; the one that was written last is the last one
        self._newest = -1  # its number
        self.size = 0  # bytes
        self.end = 0  # the file offset behind the last one
        self.pieces = 0  # each costs some memory
        self._filled_bytes = 0  # in chunks that are filled

    @property
    def ready_bytes(self) -> int:
        """About so many bytes are in chunks that need not wait for more."""
        newest = self._chunks.get(self._newest)
        kept = self._keep_bytes if newest is None else max(self._keep_bytes, newest.size)
        return self._filled_bytes + max(0, self.size - self._filled_bytes - kept)

    def add(self, offset: int, data: Data) -> None:
        """Keep the bytes. A bytearray is taken over: the caller must not change it afterwards. A memoryview is copied.
        If there is no memory for that (MemoryError), only those of the first chunks may be kept."""
        at = 0
        while at < len(data):
            room = self._chunk_bytes - (offset + at) % self._chunk_bytes
            part = data if room >= len(data) and not at else data[at : at + room]
            self._add(offset + at, part)
            at += len(part)
            self.end = max(self.end, offset + at)

    def _add(self, offset: int, part: Data, put: Callable[[_Pieces, int, Data], None] = _Pieces.add) -> None:
        chunk = self._touched(offset // self._chunk_bytes)
        size, pieces = chunk.size, len(chunk.parts)
        put(chunk, offset, part)
        self.size += chunk.size - size
        self.pieces += len(chunk.parts) - pieces
        if size < chunk.size == self._chunk_bytes:
            self._filled_bytes += chunk.size

    def _touched(self, number: int) -> _Pieces:
        if number == self._newest:
            return self._chunks[number]
        chunk = self._chunks.pop(number) if number in self._chunks else _Pieces()
        self._chunks[number], self._newest = chunk, number
        return chunk

    def copies_of(self, offset: int, length: int) -> list[Extent]:
        """Copies of the bytes of a range."""
        first, last = offset // self._chunk_bytes, -(-(offset + length) // self._chunk_bytes)
        if last - first > len(self._chunks):
            chunks: Iterable[_Pieces] = self._chunks.values()
        else:
            chunks = (self._chunks[number] for number in range(first, last) if number in self._chunks)
        found = (extent for chunk in chunks for extent in chunk.within(offset, offset + length))
        return [(start, memoryview(bytes(part))) for start, part in found]

    def drain(self) -> list[Extent]:
        """Return all extents, and keep none. If there is no memory for that, all are kept (MemoryError)."""
        return self._drain(list(self._chunks))

    def drain_ready(self) -> list[Extent]:
        """The same for the chunks that are filled, and those that were not written for the longest time. A chunk that
        is being filled is cheaper to send once, when it is full."""
        taken, kept, keeping = [], 0, True
        for number, chunk in reversed(self._chunks.items()):
            if chunk.size < self._chunk_bytes and keeping:
                keeping = not kept or kept + chunk.size <= self._keep_bytes
                if keeping:
                    kept += chunk.size
                    continue
            taken.append(number)
        return self._drain(taken[::-1])

    def _drain(self, numbers: list[int]) -> list[Extent]:
        for number in numbers:  # each frees the memory of its pieces for the next one
            chunk = self._chunks[number]
            pieces = len(chunk.parts)
            chunk.join()
            self.pieces -= pieces - len(chunk.parts)
        taken: list[Extent] = []
        for number in numbers:
            chunk = self._chunks.pop(number)
            taken += [(offset, memoryview(part)) for offset, part in zip(chunk.offsets, chunk.parts, strict=True)]
            self.size -= chunk.size
            self.pieces -= len(chunk.parts)
            self._filled_bytes -= chunk.size if chunk.size == self._chunk_bytes else 0
        self._newest = next(reversed(self._chunks), -1)
        self.end = max((chunk.end for chunk in self._chunks.values()), default=0)
        return taken

    def clear(self) -> None:
        """Keep nothing."""
        self._chunks, self._newest = {}, -1
        self.size = self.end = self.pieces = self._filled_bytes = 0

    def put_back(self, extents: list[Extent]) -> int:
        """Keep drained extents again, below everything that was added since. Returns how many of their bytes are not
        kept, because they were written again since. No bytes are copied: maybe there is no memory for that."""
        later, size = self._chunks, self.size
        self._chunks, self._newest = {}, -1
        self.size = self.pieces = self._filled_bytes = 0
        for offset, data in extents:
            size += len(data)
            self._add(offset, data, _Pieces.put)
            self.end = max(self.end, offset + len(data))  # which other threads ask for: it never goes back here
        for chunk in later.values():
            for offset, part in zip(chunk.offsets, chunk.parts, strict=True):
                self._add(offset, part, _Pieces.put)
        return size - self.size


def clip(extents: Iterable[tuple[int, Data]], offset: int, length: int) -> list[Extent]:
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
