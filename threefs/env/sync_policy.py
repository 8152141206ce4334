"""Where a file is synced: at once on the event loop, or in a thread.

While a thread syncs, the loop goes on. But two wake-ups cost about as much as the sync of a fast disk, and they add to
the latency of a program that makes one change at a time. A sync on the loop costs only itself, and everything else
waits for it. So a file is synced on the loop only while its syncs have been fast lately. A disk that stalls blocks the
loop once, and then not again for many syncs.

One fast sync in four is enough: on a busy machine most syncs seem slow only because their process waited for a
processor, and then wake-ups cost even more. A slow disk has hardly a fast sync.
"""

QUICK_S = 0.0005  # other calls may be held up for this long
STALL_S = 0.05
_QUICK_WEIGHT = 3  # against one that is not
_MAX_BALANCE = 24
_WARY_SYNCS = 256


class SyncPolicy:
    """Decides for one file, from how long its syncs took."""

    def __init__(self) -> None:
        self._balance = -_MAX_BALANCE  # fast syncs against slow ones; it begins as for a slow disk
        self._wary = 0  # syncs that are still to be done in a thread

    @property
    def on_loop(self) -> bool:
        """Whether the next sync may hold up the loop."""
        return self._balance > 0 and not self._wary

    def record(self, seconds: float) -> None:
        """A sync has ended."""
        if seconds < QUICK_S:
            self._balance = min(self._balance + _QUICK_WEIGHT, _MAX_BALANCE)
        else:
            self._balance = max(self._balance - 1, -_MAX_BALANCE)
        if seconds >= STALL_S:
            self._wary = _WARY_SYNCS
        elif self._wary:
            self._wary -= 1
