"""The clock that a test moves by hand."""

import asyncio
from collections.abc import Callable


class SteppedClock:
    """threefs.env.clock.Clock whose time stands still but for `advance`, and for sleeps, which pass at once. With
    `sleepers_wait` they last until the time has been moved to their end. Each look may take `step_s`."""

    def __init__(self, now_s: float = 1000.0, *, step_s: float = 0.0, sleepers_wait: bool = False) -> None:
        self.sleepers_wait = sleepers_wait
        self.sleeps: list[float] = []
        self.on_sleep: Callable[[], None] = lambda: None
        self._now = now_s
        self._step_s = step_s
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        self._now += self._step_s
        return self._now

    def wall_ns(self) -> int:
        return int(self._now * 1e9)

    def advance(self, seconds: float) -> None:
        """A sleeper that wakes by this sees the new time, which may be later than the end of its sleep."""
        self._move_to(self._now + seconds)

    async def pass_by(self, seconds: float) -> None:
        """As `advance`, but each sleeper wakes at its time, and may sleep again before the next one."""
        until = self._now + seconds
        await asyncio.sleep(0)
        while self._now < until:
            self._move_to(min(until, min([end for end, _ in self._sleepers if end > self._now], default=until)))
            for _ in range(10):
                await asyncio.sleep(0)

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.on_sleep()
        if self.sleepers_wait:
            woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._sleepers.append((self._now + seconds, woken))
            await woken
        else:
            self.advance(seconds)
            await asyncio.sleep(0)

    def _move_to(self, now_s: float) -> None:
        self._now = now_s
        for end, woken in self._sleepers:
            if end <= now_s and not woken.done():
                woken.set_result(None)
        self._sleepers = [each for each in self._sleepers if each[0] > now_s]
