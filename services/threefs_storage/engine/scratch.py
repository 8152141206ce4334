"""Page-aligned scratch memory, kept for reuse: the first touch of a fresh page costs more than what is done with it."""

import mmap

_MOST_KEPT_BYTES = 64 << 20


class Scratch:
    """Pieces of a power of two of bytes."""

    def __init__(self) -> None:
        self._kept: dict[int, list[memoryview]] = {}
        self._kept_bytes = 0

    def take(self, length: int) -> memoryview:
        """At least so many bytes, whatever they hold. To be given back."""
        size = max(mmap.PAGESIZE, 1 << (length - 1).bit_length())
        kept = self._kept.get(size)
        if kept:
            self._kept_bytes -= size
            return kept.pop()
        return memoryview(mmap.mmap(-1, size))

    def give(self, piece: memoryview) -> None:
        if self._kept_bytes + len(piece) <= _MOST_KEPT_BYTES:
            self._kept.setdefault(len(piece), []).append(piece)
            self._kept_bytes += len(piece)
