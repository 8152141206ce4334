"""The send window of a connection: the number of calls, and bytes of payload, that may be in flight at the peer.

The peer states its limits in HELLO. A call that exceeds them waits for its turn, so load never ends a connection.

Some calls make the peer call others before it answers, for example a write that is forwarded along a chain. Such a call
names the number of processes that it will still pass (`hops`). If every process filled the windows of all others with
such calls, all of them would wait for each other. So calls with `n` or more hops share the 2^-n part of the window:
calls at their last process find room and end, and their end makes room for the calls before them.

Decisions only, no I/O.
"""

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")

#: A call with more hops counts as one with this number.
MAX_HOPS = 3


class SendWindow(Generic[T]):
    """The calls in flight and the calls that wait. A payload larger than its part of the window is sent alone."""

    __slots__ = ("_bytes", "_calls", "_waiting", "calls", "max_calls", "most_bytes", "waiting")

    def __init__(self, max_calls: int, most_bytes: int) -> None:
        self.max_calls = max_calls
        self.most_bytes = most_bytes
        self.calls = 0  # in flight
        self.waiting = 0  # calls that wait for their turn
        # By number of hops: the calls in flight that have at least as many (0: see `calls`).
        self._calls = [0] * (MAX_HOPS + 1)
        self._bytes = [0] * (MAX_HOPS + 1)
        self._waiting: list[deque[tuple[T, int]]] = [deque() for _ in range(MAX_HOPS + 1)]

    def try_take(self, size: int = 0, hops: int = 0) -> bool:
        """Take room for a call with `size` bytes of payload. False if there is none, or if others wait for the same
        room."""
        hops = min(hops, MAX_HOPS)
        if (size and any(self._waiting[: hops + 1])) or not self._fits(size, hops):
            return False
        self._add(1, size, hops)
        return True

    def has_room(self, size: int = 0, hops: int = 0) -> bool:
        """Whether `try_take` would take room, and nobody waits for any."""
        return not self.waiting and self._fits(size, min(hops, MAX_HOPS))

    def wait(self, item: T, size: int = 0, hops: int = 0) -> None:
        """Let a call wait; `next` returns it in its turn. Calls with the same number of hops keep their order."""
        self._waiting[min(hops, MAX_HOPS)].append((item, size))
        self.waiting += 1

    def withdraw(self, item: T) -> None:
        """Remove a call that waits."""
        for waiting in self._waiting:
            for place, entry in enumerate(waiting):
                if entry[0] is item:
                    del waiting[place]
                    self.waiting -= 1
                    return
        raise AssertionError("only a call that waits is withdrawn")

    def give(self, size: int = 0, hops: int = 0) -> None:
        """A call has ended. If others wait, the caller has to call `next` after this."""
        self._add(-1, -size, min(hops, MAX_HOPS))

    def next(self) -> T | None:
        """The waiting call whose turn it is, which is in flight from now on. None: there is no room, or no call
        waits."""
        for hops, waiting in enumerate(self._waiting):
            if waiting:
                item, size = waiting[0]
                if not self._fits(size, hops):
                    return None
                waiting.popleft()
                self.waiting -= 1
                self._add(1, size, hops)
                return item
        return None

    def _fits(self, size: int, hops: int) -> bool:
        """Whether the call fits into the whole window, and into each part that is for calls with its hops."""
        if self.calls >= self.max_calls:
            return False
        for part in range(hops + 1):
            used = self._bytes[part]
            if used and used + size > self.most_bytes >> part and size:
                return False
            if part and self._calls[part] >= max(1, self.max_calls >> part):
                return False
        return True

    def _add(self, calls: int, size: int, hops: int) -> None:
        self.calls += calls
        self._bytes[0] += size
        for part in range(1, hops + 1):
            self._calls[part] += calls
            self._bytes[part] += size
