"""Receiving frames: who gets them, the progress within destination buffers, and the memory budget for bodies, which are
not checked before they are complete."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from threefs.errors import ThreefsError
from threefs.rpc.frames import PROBE_BYTES, SEGMENT_BYTES, Header

#: The destination of payload of calls that have ended. Never read.
UNWANTED = memoryview(bytearray(SEGMENT_BYTES))


class Receiver(Protocol):
    def frame(self, header: Header, body: bytes) -> Sequence[memoryview]:
        """A frame has come. Returns the destination of its inline payload, views of header.inline_bytes in total."""
        ...

    def payload_done(self, header: Header) -> None:
        """The inline payload of that frame has been received."""
        ...

    def lost(self, error: ThreefsError) -> None:
        """The stream is closed. Called once."""
        ...


def unwanted(header: Header) -> Sequence[memoryview]:
    """The destination of payload that nobody wants."""
    return [UNWANTED[: header.inline_bytes]] if header.payload_bytes else ()


def advance(wanted: deque[memoryview], count: int) -> int:
    """Drop the first `count` bytes of the views, which were received. Returns the bytes that exceeded the views."""
    while wanted and count:
        view = wanted[0]
        if len(view) <= count:
            count -= len(view)
            wanted.popleft()
        else:
            wanted[0] = view[count:]
            count = 0
    return count


_SMALL_BYTES = 256 << 10


class BodyBudget:
    """Bounds the bytes of bodies that all connections of a process are receiving. A body that exceeds it waits in its
    sender. A small one never waits, or a busy process would not answer a probe (`ConnectionPool.probe`), and count as
    one that cannot be reached: a connection has as many bytes in any case, to receive into.

    A quarter is for bodies of ordinary requests: large ones, which may come slowly, would keep them waiting. What these
    have within their quarter takes no room from large ones.

    `free_memory` is called to evict a peer that holds much of the budget and makes no progress.
    """

    __slots__ = ("_free_memory", "_large_bytes", "_most_bytes", "bytes")

    def __init__(self, most_bytes: int, free_memory: Callable[[], object] = lambda: None) -> None:
        self.bytes = self._large_bytes = 0
        self._most_bytes = most_bytes
        self._free_memory = free_memory

    def take(self, size: int) -> bool:
        """False: the budget has no room for `size` bytes now. A body larger than the whole budget is received alone."""
        if size > PROBE_BYTES and not self._has_room(size):
            self._free_memory()
            if not self._has_room(size):
                return False
        self._count(size, size)
        return True

    def give(self, size: int) -> None:
        """A body is complete, or will never be."""
        self._count(size, -size)

    def _has_room(self, size: int) -> bool:
        large = self._large_bytes
        if size > _SMALL_BYTES and large and large + size > self._most_bytes - self._most_bytes // 4:
            return False
        return not self.bytes or self.bytes + size <= self._most_bytes

    def _count(self, size: int, change: int) -> None:
        self.bytes += change
        if size > _SMALL_BYTES:
            self._large_bytes += change
