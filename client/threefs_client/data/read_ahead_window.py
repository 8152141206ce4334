"""How far to read ahead of a reader: a pure decision. No I/O happens here.

The window doubles while reads are sequential, up to a limit. A read elsewhere collapses it, and the next sequential
read begins anew. More is asked for when half of a small window, or a part of a large one, is used up: then the reader
of a stream has bytes in memory, and others are on their way.
"""

#: The first window of a sequential reader. A small file comes in one request.
FIRST_BYTES = 64 << 10
#: One request. Several of them are in flight in a large window.
MAX_PART_BYTES = 2 << 20
#: A lower limit turns read-ahead off.
MIN_LIMIT_BYTES = 4096


class ReadAheadWindow:
    """Offsets and sizes are in bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes if limit_bytes >= MIN_LIMIT_BYTES else 0
        self.size = 0  # how far to read ahead; 0: the reader is not sequential, or has not begun
        self.next = 0  # offset of the next sequential read
        self.end = 0  # everything from `next` up to here was asked for

    @property
    def part_bytes(self) -> int:
        """The size of one request."""
        return min(MAX_PART_BYTES, max(FIRST_BYTES, self.size // 2))

    @property
    def more_at(self) -> int:
        """More is asked for when the reader gets to this offset."""
        return self.end - max(self.size // 2, self.size - self.part_bytes)

    def advance(self, offset: int, length: int, *, inside: bool) -> bool:
        """A read of this range begins; `inside` says whether its first byte was asked for. Returns whether the read is
        sequential."""
        sequential = offset == self.next
        if not sequential:
            self.size = 0
            if not inside:
                self.end = 0
        self.next = offset + length
        return sequential

    def clear(self) -> None:
        """The bytes that were read ahead were dropped. The reader may go on sequentially."""
        self.size = self.end = 0

    def ask(self, offset: int, length: int, file_end: int) -> list[tuple[int, int]]:
        """The (offset, length) of the requests to send for a sequential read of this range, and behind it.

        Only a small read gets its own bytes in this way. What a large one has not asked for before is read straight to
        where its caller wants it.
        """
        if length >= self.limit_bytes:  # it has enough requests in flight by itself
            self.size = 0
            return []
        begin = max(self.end, offset if length < FIRST_BYTES else offset + length)
        if begin >= file_end or (begin == self.end and offset + length < self.more_at):
            return []
        self.size = min(self.limit_bytes, max(2 * self.size, FIRST_BYTES, length))
        target = offset + length + self.size
        aligned = target - target % self.part_bytes  # later requests begin where chunks begin
        self.end = min(file_end, aligned if aligned > begin else target)
        return _cut(begin, self.end, self.part_bytes)


def _cut(begin: int, end: int, part_bytes: int) -> list[tuple[int, int]]:
    """Cut a range at multiples of a size."""
    parts = []
    while begin < end:
        length = min(end, begin - begin % part_bytes + part_bytes) - begin
        parts.append((begin, length))
        begin += length
    return parts
