"""The last events of each chunk and chain, for people who search an error and for tests. Memory is bounded."""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from threefs.bounded_dict import BoundedDict
from threefs.env.clock import CLOCK, Clock


@dataclass(frozen=True, slots=True)
class Event:
    at: float  # monotonic seconds
    what: str
    facts: dict[str, Any]


class EventTrace:
    """The last `events` events of each of the `keys` keys that had the most recent ones."""

    def __init__(self, *, keys: int = 1024, events: int = 16, clock: Clock = CLOCK) -> None:
        self._events = events
        self._clock = clock
        self._traces = BoundedDict[Hashable, deque[Event]](keys)

    def add(self, key: Hashable, what: str, **facts: Any) -> None:
        trace = self._traces.get(key)
        if trace is None:
            trace = deque(maxlen=self._events)
        trace.append(Event(self._clock.monotonic(), what, facts))
        self._traces.put(key, trace)

    def of(self, key: Hashable) -> list[Event]:
        """Oldest first."""
        return list(self._traces.get(key, ()))
