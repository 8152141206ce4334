"""Time. Everything that asks for the time or sleeps does it here, so that a simulation can own time."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...

    def wall_ns(self) -> int:
        """Nanoseconds since 1970; for timestamps only, never for decisions."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class RealClock:
    monotonic = staticmethod(time.monotonic)
    wall_ns = staticmethod(time.time_ns)
    sleep = staticmethod(asyncio.sleep)


CLOCK = RealClock()
