"""Page-aligned buffers that are used again: a fresh MiB costs more in page faults than copying it does.

Sizes are powers of two. A pool keeps a bounded number of bytes; what comes back beyond that is freed.
"""

import mmap

SMALLEST_BYTES = 4096


class BufferPool:
    """Lends whole mappings, so that O_DIRECT can use them. Not thread-safe: one event loop owns a pool."""

    def __init__(self, keep_bytes: int = 256 << 20) -> None:
        self._keep_bytes = keep_bytes
        self._kept_bytes = 0
        self._free: dict[int, list[memoryview]] = {}
        self.lent = 0

    def take(self, length_bytes: int) -> memoryview:
        """A writable, page-aligned view of at least `length_bytes`. Its old content is still in it."""
        size = size_class(length_bytes)
        free = self._free.get(size)
        self.lent += 1
        if free:
            self._kept_bytes -= size
            return free.pop()
        return memoryview(mmap.mmap(-1, size))

    def give(self, buffer: memoryview) -> None:
        """Take back the whole view that `take` returned; nobody may touch it after this."""
        assert self.lent > 0, "a buffer came back twice"
        self.lent -= 1
        size = len(buffer)
        if self._kept_bytes + size > self._keep_bytes:
            return  # the mapping goes with its last reference
        self._kept_bytes += size
        self._free.setdefault(size, []).append(buffer)


def size_class(length_bytes: int) -> int:
    """The power of two that holds `length_bytes`, at least a page."""
    return max(SMALLEST_BYTES, 1 << (length_bytes - 1).bit_length()) if length_bytes > 0 else SMALLEST_BYTES
