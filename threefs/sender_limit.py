"""How many services may send to a host at a time: found out by its effect on the answers, as TCP finds its window.

An answer that takes a fifth of a second longer than its bytes need has lost packets: a sender waits that long before it
sends them again. Then the limit is halved. While the limit keeps answers waiting and none stalls, it rises by one at a
time: soon up to half of what was too much last time, slowly from there on. Decisions only, no I/O.
"""

from typing import Protocol

LEAST = 4
#: TCP repeats what was lost after at least 0.2 s (Linux: TCP_RTO_MIN).
STALL_S = 0.15
_CUT_PAUSE_S = 0.5  # stalls of one moment count once
_QUICK_S, _SLOW_S = 0.1, 2.0  # between two rises
_WINDOW_S = 0.1  # over which goodput is measured
_DECAY_PER_S = 0.05  # of the highest goodput


class Limit(Protocol):
    """The limit of a host, which its processes share."""

    most: int  # as configured
    value: int
    too_many: int  # at which answers stalled last; 0: never
    raised_at: float  # by the clock of the host
    cut_at: float


class OwnLimit:
    """A limit that is not shared."""

    def __init__(self, most: int) -> None:
        self.most = self.value = most
        self.too_many = 0
        self.raised_at = self.cut_at = 0.0


class SenderLimit:
    """Adapts a limit to the answers that this process receives."""

    __slots__ = ("_bytes", "_goodput", "_limit", "_window_began", "stalls")

    def __init__(self, limit: Limit) -> None:
        self.stalls = 0
        self._limit = limit
        self._goodput = 0.0  # bytes per second: the highest lately
        self._window_began = 0.0
        self._bytes = 0

    def received(self, now: float, size: int, took_s: float, others_bytes: int) -> None:
        """An answer of `size` bytes has come, `took_s` after its first byte. `others_bytes` more were coming."""
        self._bytes += size
        if not self._window_began:
            self._window_began = now - took_s
        elapsed = now - self._window_began
        if elapsed >= _WINDOW_S:
            kept = self._goodput * max(0.0, 1.0 - _DECAY_PER_S * elapsed)
            self._goodput = max(kept, self._bytes / elapsed)
            self._window_began, self._bytes = now, 0
        if took_s >= STALL_S and took_s >= STALL_S + 2 * (size + others_bytes) / max(self._goodput, 1.0):
            self.stalls += 1
            self._cut(now)

    def binding(self, now: float) -> None:
        """Answers wait because of the limit."""
        limit = self._limit
        pause_s = _SLOW_S if limit.too_many and limit.value >= limit.too_many // 2 else _QUICK_S
        if limit.value < limit.most and not 0 <= now - max(limit.raised_at, limit.cut_at) < pause_s:
            limit.value += 1
            limit.raised_at = now

    def _cut(self, now: float) -> None:
        limit = self._limit
        if 0 <= now - limit.cut_at < _CUT_PAUSE_S:
            return
        limit.too_many = limit.value
        limit.value = max(min(LEAST, limit.most), limit.value // 2)
        limit.cut_at = now
