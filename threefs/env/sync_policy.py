"""Where a file is synced: at once on the event loop, or in a thread.

A thread lets the loop go on meanwhile. But to wake it up and to be woken up by it costs about as much as the sync of a
quick disk, and all of that is the latency of whoever changes one thing at a time. On the loop the sync itself is all
that there is to wait for. The price is that everything else waits as well: so it is done only where syncs have been
quick lately, and a disk that stalls holds up the loop once, and then not again for many syncs.

Every fourth is enough: on a busy machine most syncs may seem slow only because their process had to wait for a
processor, and then wake-ups cost even more. A disk that is slow has hardly a quick one.
"""

QUICK_S = 0.0005  # nobody minds having waited so long for another call
STALL_S = 0.05
_QUICK_WEIGHT = 3  # against one that is not
_MOST_BALANCE = 24
_WARY_SYNCS = 256


class SyncPolicy:
    """Of the syncs of one file, wherever they are done."""

    def __init__(self) -> None:
        self._balance = -_MOST_BALANCE  # of quick syncs against others; nothing is known yet
        self._wary = 0  # so many syncs are still to be done elsewhere

    @property
    def on_loop(self) -> bool:
        """Whether the next sync may hold up the loop."""
        return self._balance > 0 and not self._wary

    def record(self, seconds: float) -> None:
        """A sync has ended."""
        if seconds < QUICK_S:
            self._balance = min(self._balance + _QUICK_WEIGHT, _MOST_BALANCE)
        else:
            self._balance = max(self._balance - 1, -_MOST_BALANCE)
        if seconds >= STALL_S:
            self._wary = _WARY_SYNCS
        elif self._wary:
            self._wary -= 1
