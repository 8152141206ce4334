"""The story of a key: what happened to a chunk or a chain lately, for people and for tests. Bounded."""

from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from threefs.env.clock import CLOCK, Clock


@dataclass(frozen=True, slots=True)
class Event:
    at: float  # monotonic seconds
    what: str
    facts: dict[str, Any]


class EventTrace:
    """The last events of the keys that were touched last."""

    def __init__(self, *, keys: int = 1024, events: int = 16, clock: Clock = CLOCK) -> None:
        self._keys = keys
        self._events = events
        self._clock = clock
        self._told: OrderedDict[Hashable, deque[Event]] = OrderedDict()

    def add(self, key: Hashable, what: str, **facts: Any) -> None:
        told = self._told.get(key)
        if told is None:
            told = self._told[key] = deque(maxlen=self._events)
            if len(self._told) > self._keys:
                self._told.popitem(last=False)
        else:
            self._told.move_to_end(key)
        told.append(Event(self._clock.monotonic(), what, facts))

    def of(self, key: Hashable) -> list[Event]:
        """Oldest first."""
        return list(self._told.get(key, ()))
