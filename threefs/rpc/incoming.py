"""What a link is receiving: where it goes, and room for bodies, which nobody has checked yet."""

from collections import deque
from collections.abc import Callable


def advance(wanted: deque[memoryview], count: int) -> int:
    """So many bytes have come into the views, from the front; what is left of `count` went behind them."""
    while wanted and count:
        view = wanted[0]
        if len(view) <= count:
            count -= len(view)
            wanted.popleft()
        else:
            wanted[0] = view[count:]
            count = 0
    return count


class BodyBudget:
    """Bounds the bodies that all links of a process are receiving. A body that finds no room waits in its sender.

    `relieve` is asked to let go of a peer that holds much of the room and does not get on.
    """

    __slots__ = ("_free_memory", "_most_bytes", "bytes")

    def __init__(self, most_bytes: int, free_memory: Callable[[], object] = lambda: None) -> None:
        self.bytes = 0
        self._most_bytes = most_bytes
        self._free_memory = free_memory

    def take(self, size: int) -> bool:
        """False: there is no room for so many bytes now. What is larger than the whole room goes alone."""
        if self.bytes and self.bytes + size > self._most_bytes:
            self._free_memory()
            if self.bytes and self.bytes + size > self._most_bytes:
                return False
        self.bytes += size
        return True

    def give(self, size: int) -> None:
        """The body is complete, or will not come."""
        self.bytes -= size
