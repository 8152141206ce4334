"""The budget of what a process receives: how many services may send to it at a time, and how many bytes.

Many services that answer one process at the same time overrun the last switch before it: packets are lost, and each
loss stops a connection for a fifth of a second (incast). So a service sends a large answer only if the process has room
for it. An answer that waits is announced by its service, and granted in its turn.

The unit is a slot: the right to receive from one sender, and `slot_bytes` at a time. Senders with announced answers
take turns. Decisions only, no I/O.
"""

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class ReceiveBudget(Generic[T]):
    """The answers that may come now, and those that wait. An answer larger than the whole budget comes alone."""

    __slots__ = ("_senders", "_slot_bytes", "_waiting", "bytes", "slots", "waiting")

    def __init__(self, slot_bytes: int) -> None:
        self.slots = 0  # that this process has
        self.bytes = 0  # of answers that may come
        self.waiting = 0  # answers
        self._slot_bytes = slot_bytes
        self._senders: dict[str, int] = {}  # how many answers of each may come
        self._waiting: dict[str, deque[tuple[T, int]]] = {}  # by sender; the one whose turn it is comes first

    def try_take(self, sender: str, size: int) -> bool:
        """Take room for an answer. False if there is none, or if others wait for it."""
        if self.waiting or not self._fits(sender, size):
            return False
        self._add(sender, size)
        return True

    def wait(self, sender: str, size: int, item: T) -> None:
        """Let an announced answer wait; `next` returns it in its turn."""
        self._waiting.setdefault(sender, deque()).append((item, size))
        self.waiting += 1

    def withdraw(self, sender: str, item: T) -> None:
        """Remove an answer that waits."""
        queue = self._waiting[sender]
        place = next(place for place, entry in enumerate(queue) if entry[0] is item)
        del queue[place]
        if not queue:
            del self._waiting[sender]
        self.waiting -= 1

    def give(self, sender: str, size: int) -> None:
        """An answer has come, or will not. If others wait, the caller has to call `next` after this."""
        self.bytes -= size
        left = self._senders[sender] - 1
        if left:
            self._senders[sender] = left
        else:
            del self._senders[sender]

    def next(self) -> T | None:
        """The answer whose turn it is, which may come from now on. None: there is no room, or none waits.

        Senders take turns in strict order. Otherwise those that send already would keep their places for as long as
        they have more to send.
        """
        if not self.waiting:
            return None
        sender, queue = next(iter(self._waiting.items()))
        item, size = queue[0]
        if not self._fits(sender, size):
            return None
        queue.popleft()
        del self._waiting[sender]
        if queue:
            self._waiting[sender] = queue  # behind all others
        self.waiting -= 1
        self._add(sender, size)
        return item

    @property
    def used_slots(self) -> int:
        """The number of slots that the answers which may come need."""
        return max(len(self._senders), -(-self.bytes // self._slot_bytes))

    @property
    def senders(self) -> int:
        return len(self._senders)

    def _fits(self, sender: str, size: int) -> bool:
        if len(self._senders) >= self.slots and (sender not in self._senders or not self.slots):
            return False
        used = self.bytes
        return not used or used + size <= self.slots * self._slot_bytes

    def _add(self, sender: str, size: int) -> None:
        self._senders[sender] = self._senders.get(sender, 0) + 1
        self.bytes += size
