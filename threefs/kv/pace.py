"""Where a log is synced: at once on the event loop, or in a thread.

A thread lets the loop go on meanwhile. But to wake it up and to be woken up by it costs about as much as the sync of a
quick disk, and all of that is the latency of whoever changes one thing at a time. On the loop the sync itself is all
that there is to wait for. The price is that everything else waits as well: so it is done only where syncs have been
quick lately, and a disk that stalls holds up the loop once, and then not again for many syncs.
"""

QUICK_S = 0.0005  # on average: nobody minds having waited so long for another call
STALL_S = 0.02
_WEIGHT = 1 / 16  # of the newest sync in the average
_WARY_SYNCS = 1000


class Pace:
    """Of the syncs of one log, wherever they are done."""

    def __init__(self) -> None:
        self._average_s = 2 * QUICK_S  # nothing is known yet
        self._wary = 0  # so many syncs are still to be done elsewhere

    @property
    def on_loop(self) -> bool:
        """Whether the next sync may hold up the loop."""
        return self._average_s < QUICK_S and not self._wary

    def took(self, seconds: float) -> None:
        """A sync has ended."""
        self._average_s += (seconds - self._average_s) * _WEIGHT
        if seconds >= STALL_S:
            self._wary = _WARY_SYNCS
        elif self._wary:
            self._wary -= 1
