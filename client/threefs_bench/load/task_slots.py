"""The slots of an asyncio engine: tasks that live as long as the run, each with one call in flight."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from threefs.env.clock import CLOCK

#: Calls that are in flight when a run is stopped may still end in this time; then they are cancelled.
GRACE_S = 5.0
_PAUSE_S = 0.25


class TaskSlots:
    def __init__(self) -> None:
        self.stopped = False
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self, bodies: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Until all have ended. Raises the first error; a slot that `stop` has cancelled is none."""
        self._tasks = [asyncio.create_task(body) for body in bodies]
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    async def pause_until(self, start_s: float) -> bool:
        """False when the run was stopped before."""
        while (left_s := start_s - CLOCK.monotonic()) > 0 and not self.stopped:
            await CLOCK.sleep(min(left_s, _PAUSE_S))
        return not self.stopped

    def stop(self) -> None:
        if not self.stopped:
            self.stopped = True
            for task in self._tasks:
                asyncio.get_running_loop().call_later(GRACE_S, task.cancel)
