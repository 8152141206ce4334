"""Tests with nothing outside of them to wait for run in virtual time: a slow machine cannot make their limits pass."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from tests.harness.simulated.loop import SimLoop

T = TypeVar("T")


class LoopClock:
    """threefs.env.clock.Clock of whatever loop runs: virtual within `run_virtual`."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_ns(self) -> int:
        return time.time_ns()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


LOOP_CLOCK = LoopClock()


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, but when nothing is left to do, the clock jumps to the next timer."""
    loop = SimLoop()
    try:
        return loop.run(main)
    finally:
        loop.discard()
