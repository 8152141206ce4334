"""A disk that takes nothing any more, or gives nothing, and says nothing.

Calls to it wait without end, and so would all writes to the chains of its targets: the process lives, and its peers
reach it. A disk on which only reads hang stops writes, too, because a change of a part of a chunk reads. So the process
sends no heartbeat while the disk stands still. The managers put its targets out of their chains as those of a node that
is cut off, and they come back by themselves when the disk goes on.
"""

from collections.abc import Iterable

import structlog

from threefs.env.clock import Clock
from threefs.ids import TargetId
from threefs_storage.target import Target

#: No write ends for so long, although some wait, or no read. A disk that is only slow or busy ends one now and then.
STALL_S = 30.0

_LOG = structlog.get_logger()


class DiskStall:
    """Of the one disk of a process."""

    def __init__(self, clock: Clock, limit_s: float = STALL_S) -> None:
        self._clock = clock
        self._limit_s = limit_s
        #: Of each kind of work that waits: how much had ended, and since when.
        self._waiting: dict[tuple[TargetId, str], tuple[int, float]] = {}
        self._is_over = False

    def is_over(self, targets: Iterable[Target]) -> bool:
        """To be called again and again."""
        now = self._clock.monotonic()
        waiting = {}
        for target in targets:
            for kind, work in (("write", target.engine.committer.work), ("read", target.engine.reading)):
                if work.waiting:
                    ended, since = self._waiting.get((target.target_id, kind), (work.ended, now))
                    waiting[target.target_id, kind] = (work.ended, since if ended == work.ended else now)
        self._waiting = waiting
        is_over = any(now - since >= self._limit_s for _, since in waiting.values())
        if is_over != self._is_over:
            self._is_over = is_over
            if is_over:
                _LOG.error("the disk stands still: no heartbeat is sent until it goes on", seconds=self._limit_s)
            else:
                _LOG.warning("the disk goes on")
        return is_over
