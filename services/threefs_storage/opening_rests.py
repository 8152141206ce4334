"""Which stores that could not be opened are not tried again yet.

The other targets of the node wait for an attempt before they act in a new routing, and would lose their leases if
stores that fail slowly were tried all the time.
"""

import math
from collections.abc import Iterable

from threefs.ids import TargetId

#: An opening that fails within this time may be tried at once.
_QUICK_S = 0.5
#: How long all that fail slowly rest for each second more that one of them has taken.
_REST_PER_S = 10.0
#: A disk that hung for long may work again now, and its chains lack a copy until it is tried. So they rest no longer
#: than this, or than the attempt has taken: else attempts would take most of the time.
_LONG_REST_S = 300.0
_MAX_REST_S = 3600.0


class OpeningRests:
    """Of stores that mostly lie on one disk, and are tried one after the other."""

    def __init__(self) -> None:
        self._failed_at: dict[TargetId, float] = {}  # only those that failed slowly
        self._until = -math.inf

    def note(self, target: TargetId, begun_at: float, ended_at: float) -> None:
        """An attempt to open its store has failed."""
        taken_s = ended_at - begun_at
        if taken_s <= _QUICK_S:
            self._failed_at.pop(target, None)
            return
        longest_s = max(_LONG_REST_S, min(taken_s, _MAX_REST_S))
        self._failed_at[target] = ended_at
        self._until = ended_at + min(_REST_PER_S * (taken_s - _QUICK_S), longest_s)

    def discard(self, target: TargetId) -> None:
        self._failed_at.pop(target, None)

    def holds(self, target: TargetId, now: float) -> bool:
        return target in self._failed_at and now < self._until

    def in_turn(self, targets: Iterable[TargetId]) -> list[TargetId]:
        """Those first that have waited for the longest time. When the rest is over only one has its turn, if it fails
        slowly again."""
        return sorted(targets, key=lambda target: self._failed_at.get(target, -math.inf))
