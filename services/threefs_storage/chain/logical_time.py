"""The time of a chain, in minutes.

The clocks of machines cannot be compared, and those of stopped machines stand still. So each target counts the minutes
in which it runs, from where it was when it ran last, and goes on from any later time that it sees in a message of its
chain. No target's time is ever ahead of one that another has counted: between two stamps at least as much real time has
passed as they differ. It may be more: time that nobody counted counts against nobody.
"""

from threefs.env.clock import Clock

_MINUTE_S = 60.0


class LogicalTime:
    """Of one target; made anew with its store, from what the store remembers."""

    def __init__(self, clock: Clock, minutes: int = 0) -> None:
        self._clock = clock
        self._minutes = minutes
        self._counted_until = clock.monotonic()

    @property
    def now(self) -> int:
        """Whole minutes. They never fall."""
        passed = int((self._clock.monotonic() - self._counted_until) / _MINUTE_S)
        self._minutes += passed
        self._counted_until += passed * _MINUTE_S
        return self._minutes

    def observe(self, minutes: int) -> None:
        """A message of the chain has a stamp of this time."""
        if minutes > self.now:
            self._minutes, self._counted_until = minutes, self._clock.monotonic()
