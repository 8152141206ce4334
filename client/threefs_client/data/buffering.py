"""Buffers of a file object: unsent writes, and bytes that were read ahead. No I/O happens here."""

_FIRST_AHEAD_BYTES = 64 << 10

Buffer = bytes | bytearray | memoryview


class WriteBuffer:
    """Contiguous written bytes that are not sent yet.

    It is full when its end is a multiple of its size, so that whole chunks are sent.
    """

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._start = 0
        self._data = bytearray()

    def __len__(self) -> int:
        return len(self._data)

    @property
    def end(self) -> int:
        """The file offset behind the last byte; 0 if the buffer is empty."""
        return self._start + len(self._data) if self._data else 0

    def room(self, offset: int) -> int:
        """How many bytes fit at this offset; 0 if the offset does not touch the bytes in the buffer."""
        start = self._start if self._data else offset
        if not start <= offset <= start + len(self._data):
            return 0
        return start - start % self.size_bytes + self.size_bytes - offset

    def append(self, offset: int, data: Buffer) -> None:
        """Add `data`, for which there must be room. It overwrites buffered bytes."""
        if not self._data:
            self._start = offset
        at = offset - self._start
        self._data[at : at + len(data)] = data

    @property
    def is_full(self) -> bool:
        return bool(self._data) and self.end % self.size_bytes == 0

    def drain(self) -> tuple[int, bytearray]:
        """Empty the buffer; returns its offset and its bytes."""
        taken, self._data = self._data, bytearray()
        return self._start, taken

    def clear(self) -> None:
        self._data = bytearray()


class ReadAhead:
    """Bytes that were read ahead. The window doubles while reads are sequential. A read elsewhere fetches only its own
    bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._start = 0
        self._data = memoryview(b"")
        self._next = 0  # offset of the next sequential read
        self._ahead_bytes = 0

    def get(self, offset: int, length: int) -> memoryview | None:
        """The bytes, if all of them are in the window."""
        at = offset - self._start
        if at < 0 or at + length > len(self._data):
            return None
        self._next = offset + length
        return self._data[at : at + length]

    def rest(self, offset: int) -> memoryview:
        """The bytes in the window from an offset on."""
        at = offset - self._start
        return self._data[at:] if 0 <= at < len(self._data) else memoryview(b"")

    def fetch_bytes(self, offset: int, length: int) -> int:
        """How many bytes to read at `offset` to serve a read of `length`."""
        if offset != self._next:
            self._ahead_bytes = 0
        else:
            self._ahead_bytes = min(self._limit, max(2 * self._ahead_bytes, _FIRST_AHEAD_BYTES))
        return max(length, self._ahead_bytes)

    def put(self, offset: int, data: memoryview) -> None:
        self._start, self._data = offset, data

    def clear(self) -> None:
        self._data = memoryview(b"")
