"""The clock by which the silence of nodes is judged: it stands while this manager refuses heartbeats.

A manager acknowledges none while its own lease has not been renewed in time (R10), as when the store does not answer.
The silence of that time says nothing about any node, and nobody can tell it of a newer store. The clock goes on where
it stood: with the whole time T anew, a store that stops again and again would keep dead nodes in their chains.
"""

from threefs.env.clock import Clock
from threefs_manager.election import Epoch


class ListeningClock:
    """Of one term as primary."""

    def __init__(self, clock: Clock, epoch: Epoch) -> None:
        self._clock = clock
        self._epoch = epoch
        self.wall_ns = clock.wall_ns
        self.sleep = clock.sleep

    def monotonic(self) -> float:
        return self._epoch.listened_s(self._clock.monotonic())
