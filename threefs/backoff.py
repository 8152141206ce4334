"""Pauses between attempts: each is up to twice as long as the one before, and drawn at random below that.

Without the draw, callers that failed together would try again together.
"""

from dataclasses import dataclass

from threefs.env.random import Random

_MAX_DOUBLINGS = 30


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after the first attempt that failed, after the second, and so on. It keeps no state: the caller
    counts its attempts, and begins at 0 again after a success."""

    first_s: float
    longest_s: float
    jitter: float = 0.5  # the part of a pause that is drawn: all of it with 1, nothing with 0

    def limit_s(self, attempt: int) -> float:
        """The longest pause after attempt number `attempt`, counted from 0."""
        return min(self.longest_s, self.first_s * (1 << min(attempt, _MAX_DOUBLINGS)))

    def pause_s(self, attempt: int, random: Random) -> float:
        """The pause after attempt number `attempt`, counted from 0."""
        limit = self.limit_s(attempt)
        return random.uniform(limit * (1.0 - self.jitter), limit)
