"""How background work yields to calls that somebody waits for. Pure: the times are readings of the monotonic clock.

Work comes in pieces, for example one chunk of a resync. While nobody else is served, pieces run side by side, as fast
as they can. While clients are served, the work goes in bursts of about `BURST_BYTES` with pauses between them. After a
burst that took a time `t`, the pause makes `t` a share of the time: a tenth if one call is in flight, less if more are.
So the pause follows what a piece costs on this disk and this processor. But it is never so long that the work would
fall below a minimum of bytes per second: a resync must end, however busy the clients are.

A piece may hang, for example at a slow peer. A burst that has not ended after `LONGEST_BURST_S` is not waited for: the
pause begins, and then the next burst.
"""

from dataclasses import dataclass
from typing import NamedTuple

from threefs.errors import InvalidSettings

#: Of all background work, while clients are served: how much runs before the next pause.
BURST_BYTES = 512 << 10
#: A piece counts as at least so many bytes, because a sync of the disk or a call costs more than its bytes.
PIECE_BYTES = 16 << 10
#: Pieces that run side by side while no client is served.
PARALLEL = 16
#: The end of a burst is waited for so long.
LONGEST_BURST_S = 1.0
#: Clients count as being served for so long after their last call.
QUIET_S = 0.05


class Foreground(NamedTuple):
    """The calls that somebody waits for."""

    in_flight: int
    last_call_s: float  # when the last one began


@dataclass(frozen=True, slots=True)
class PaceLimits:
    min_bytes_per_s: int = 8 << 20  # that background work gets while clients are served
    share: float = 0.1  # of the time, beyond which it waits while one call of a client is in flight

    def __post_init__(self) -> None:
        if self.min_bytes_per_s < 1:
            raise InvalidSettings(f"background work needs at least 1 byte per second, not {self.min_bytes_per_s}")
        assert 0 < self.share <= 1, "a share of the time"


class BackgroundPace:
    """Call `wait_s` before each piece, `begin` and `end` around it, `end` with what `begin` has returned."""

    def __init__(self, limits: PaceLimits) -> None:
        self._limits = limits
        self._running = 0
        self._burst = 0  # the number of the last one
        self._running_in_burst = 0
        self._burst_began = 0.0
        self._burst_bytes = 0
        self._resume_at = float("-inf")  # the end of the pause

    def set_limits(self, limits: PaceLimits) -> None:
        """The pause that has begun keeps its end."""
        self._limits = limits

    def wait_s(self, now: float, foreground: Foreground) -> float | None:
        """How long the next piece has to wait before it asks again, at the latest when a piece ends; 0: it may begin.
        None: until a piece ends."""
        if self._running >= PARALLEL:
            return None
        if not self._is_busy(now, foreground):
            return 0.0
        is_young = now < self._burst_began + LONGEST_BURST_S
        if self._running_in_burst and is_young and self._burst_bytes < BURST_BYTES:
            return 0.0
        wait_s = max(0.0, self._next_burst_at(foreground) - now)
        if not foreground.in_flight:
            wait_s = min(wait_s, foreground.last_call_s + QUIET_S - now)
        return wait_s

    def begin(self, now: float, size: int, foreground: Foreground) -> int:
        """A piece of that many bytes begins. Returns the number of its burst."""
        if not self._running_in_burst or now >= self._next_burst_at(foreground):
            self._burst += 1
            self._running_in_burst = 0
        if not self._running_in_burst or not self._is_busy(now, foreground):
            self._burst_began = now
            self._burst_bytes = 0
        self._running += 1
        self._running_in_burst += 1
        self._burst_bytes += max(size, PIECE_BYTES)
        return self._burst

    def end(self, now: float, burst: int, foreground: Foreground) -> None:
        """A piece of that burst has ended, done or not."""
        assert self._running, "a piece ends once"
        self._running -= 1
        if burst != self._burst:
            return  # it was not waited for
        self._running_in_burst -= 1
        if not self._running_in_burst:
            took_s = now - self._burst_began
            self._resume_at = now + self.pause_s(took_s, self._burst_bytes, foreground.in_flight)

    def _next_burst_at(self, foreground: Foreground) -> float:
        """The end of the pause. A burst that hangs takes `LONGEST_BURST_S`."""
        if not self._running_in_burst:
            return self._resume_at
        pause_s = self.pause_s(LONGEST_BURST_S, self._burst_bytes, foreground.in_flight)
        return self._burst_began + LONGEST_BURST_S + pause_s

    def pause_s(self, took_s: float, size: int, in_flight: int) -> float:
        """The pause after a burst of that time and size, while so many calls are in flight."""
        share = self._limits.share / max(1, in_flight)
        return min(took_s * (1 / share - 1), size / self._limits.min_bytes_per_s)

    def _is_busy(self, now: float, foreground: Foreground) -> bool:
        return foreground.in_flight > 0 or now - foreground.last_call_s < QUIET_S
