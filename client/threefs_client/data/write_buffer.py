"""The small writes of a file object, put together. No I/O happens here."""

import contextlib

from threefs_client.data.dirty_extents import Extent, clip

Buffer = bytes | bytearray | memoryview


class WriteBuffer:
    """Contiguous written bytes, of which nobody else knows yet.

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
        try:
            self._data[at : at + len(data)] = data
        except BufferError:  # it was put back, and the traceback of the error of its sending still holds a view of it
            self._data = bytearray(self._data)
            self._data[at : at + len(data)] = data

    @property
    def is_full(self) -> bool:
        return bool(self._data) and self.end % self.size_bytes == 0

    def copies_of(self, offset: int, length: int) -> list[Extent]:
        """Copies of the bytes of a range."""
        buffered = [(self._start, self._data)] if self._data else []
        return [(start, memoryview(bytes(part))) for start, part in clip(buffered, offset, length)]

    def drain(self) -> tuple[int, bytearray]:
        """Empty the buffer; returns its offset and its bytes."""
        taken, self._data = self._data, bytearray()
        return self._start, taken

    def put_back(self, offset: int, data: bytearray) -> None:
        """Keep what was drained, as nothing was added since. A copy of it, because others may have it yet, but where
        there is no memory for one."""
        assert not self._data, "nothing was added since"
        with contextlib.suppress(MemoryError):
            data = bytearray(data)
        self._start, self._data = offset, data

    def clear(self) -> None:
        self._data = bytearray()
