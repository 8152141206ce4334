"""Time. All code asks for the time, and sleeps, through a clock, so that a simulation can replace it."""

import asyncio
import time
from functools import partial
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds since some fixed moment. It never goes back, and it advances while the machine is suspended."""
        ...

    def wall_ns(self) -> int:
        """Nanoseconds since 1970. For timestamps only, never for decisions."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class RealClock:
    # Not CLOCK_MONOTONIC, which stands still while a machine is suspended: a lease would outlive its time.
    monotonic = staticmethod(partial(time.clock_gettime, time.CLOCK_BOOTTIME))
    wall_ns = staticmethod(time.time_ns)
    sleep = staticmethod(asyncio.sleep)


CLOCK = RealClock()
