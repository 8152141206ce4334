"""Clocks of simulated processes: each may run a little fast or slow, and none shows the same time."""

import asyncio

from tests.harness.simulated.loop import Process, SimLoop

_WALL_NS = 1_800_000_000_000_000_000


class SimClock:
    """threefs.env.clock.Clock over the time of a SimLoop."""

    def __init__(self, loop: SimLoop, rate: float = 1.0, offset_s: float = 0.0, process: Process | None = None) -> None:
        self.process = process  # whose clock it is; it goes on while that is paused, as in a suspended machine
        #: Seconds on its wall in each second of the run; 0: it has a time of its own.
        self.wall_pace = 0
        self._loop = loop
        self._rate = rate
        self._offset_s = offset_s

    def monotonic(self) -> float:
        return self._loop._now * self._rate + self._offset_s

    def wall_ns(self) -> int:
        if self.wall_pace:
            return int(self._loop._now * self.wall_pace * 1e9) + _WALL_NS
        return int(self.monotonic() * 1e9) + 1_700_000_000_000_000_000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._rate)
