"""Clocks that a test moves by hand."""

import asyncio
from collections.abc import Callable


class SteppedClock:
    """Time stands still but for `advance` and for sleeps, which pass at once. Each look may take `step_s`."""

    def __init__(self, now_s: float = 1000.0, *, step_s: float = 0.0) -> None:
        self._now = now_s
        self._step_s = step_s
        self.on_sleep: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        self._now += self._step_s
        return self._now

    def wall_ns(self) -> int:
        return int(self._now * 1e9)

    def advance(self, seconds: float) -> None:
        self._now += seconds

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        self.on_sleep()
        await asyncio.sleep(0)


class PacedClock:
    """Time stands still but for `advance`; sleepers wake when it has brought their time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        return self.now

    def wall_ns(self) -> int:
        return int(self.now * 1e9)

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.now + seconds, future))
        await future

    async def advance(self, seconds: float) -> None:
        until = self.now + seconds
        await asyncio.sleep(0)
        while self.now < until:
            self.now = min(until, min([at for at, _ in self._sleepers if at > self.now], default=until))
            for _, future in [one for one in self._sleepers if one[0] <= self.now]:
                if not future.done():
                    future.set_result(None)
            self._sleepers = [one for one in self._sleepers if one[0] > self.now]
            for _ in range(10):
                await asyncio.sleep(0)
