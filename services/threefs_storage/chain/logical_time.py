"""The logical time of a chain, in minutes.

The clocks of machines cannot be compared, and a stopped machine does not count. So each target counts the minutes in
which it runs, starts again from the last value it has stored, and moves forward to any later value in a message of its
chain. Between two stamps at least as much real time has passed as they differ; more may have passed, because minutes
in which no target of the chain ran are not counted.
"""

from threefs.env.clock import Clock

_MINUTE_S = 60.0
#: The time is looked at every few seconds. In a longer gap the process was suspended: that does not count, because what
#: was on its way then may arrive afterwards.
_SUSPENDED_S = 600.0


class LogicalTime:
    """The logical time of one target. Its store keeps the value over restarts."""

    def __init__(self, clock: Clock, minutes: int = 0) -> None:
        self._clock = clock
        self._minutes = minutes
        self._counted_until = clock.monotonic()

    @property
    def now(self) -> int:
        """Whole minutes. They never fall."""
        uncounted_s = self._clock.monotonic() - self._counted_until
        assert uncounted_s >= 0, "a monotonic clock does not go back"
        if uncounted_s >= _SUSPENDED_S:
            self._counted_until += uncounted_s
            return self._minutes
        passed = int(uncounted_s / _MINUTE_S)
        self._minutes += passed
        self._counted_until += passed * _MINUTE_S
        return self._minutes

    def observe(self, minutes: int) -> None:
        """Move forward to the stamp of a message of the chain."""
        if minutes > self.now:
            self._minutes, self._counted_until = minutes, self._clock.monotonic()
