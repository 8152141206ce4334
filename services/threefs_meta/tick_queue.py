"""Where queues that are ordered by ticks begin: removals, the trash, and what quotas have to add up.

What was taken out of a store costs time when a read comes past its place, until the store has merged its files: after a
million removals up to 600 ms, in which a service with an embedded store does nothing else. So the part of a queue that
was found empty is not read again, except for its end, because a transaction commits some ticks after it got its stamp;
and now and then, because services of earlier releases put directories at the begin of the queue.
"""

from dataclasses import dataclass, field

#: For which a transaction with a stamp may be on its way: 40 s at least.
_LATE_TICKS = 16
#: After which a queue is read from its begin again: an hour at least.
_WHOLE_TICKS = 1440


class QueueFront:
    """Of one queue, as seen by one service."""

    def __init__(self) -> None:
        self._first = 0
        self._whole_at = 0

    def first(self, tick: int) -> int:
        """The first tick for which the queue may have something. `tick` is the present one."""
        return self._first if tick < self._whole_at else 0

    def found_empty(self, before: int, tick: int) -> None:
        """The queue has nothing from `first(tick)` until before this one."""
        first = min(before, tick - _LATE_TICKS)
        if tick < self._whole_at:
            self._first = max(self._first, first)
        else:
            self._first, self._whole_at = max(0, first), tick + _WHOLE_TICKS


@dataclass(frozen=True, slots=True)
class QueueFronts:
    removals: QueueFront = field(default_factory=QueueFront)
    trash: QueueFront = field(default_factory=QueueFront)
    deltas: QueueFront = field(default_factory=QueueFront)
