"""A clock that a test moves by hand."""

import asyncio
from collections.abc import Callable


class SteppedClock:
    """Time stands still but for `advance` and for sleeps, which pass at once."""

    def __init__(self) -> None:
        self._now = 1000.0
        self.on_sleep: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self._now

    def wall_ns(self) -> int:
        return int(self._now * 1e9)

    def advance(self, seconds: float) -> None:
        self._now += seconds

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        self.on_sleep()
        await asyncio.sleep(0)
