"""A bound on bytes in flight."""

import asyncio
from collections import deque


class ByteBudget:
    """Bounds the bytes in flight. First come, first served; a piece larger than the budget goes alone."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def used_bytes(self) -> int:
        return self._used

    @property
    def is_short(self) -> bool:
        """Somebody waits."""
        return bool(self._waiting)

    def set_limit(self, limit_bytes: int) -> None:
        """What is taken stays so, also beyond a lower limit."""
        self._limit = limit_bytes
        self._grant()

    def try_take(self, size: int) -> bool:
        """Take at once, if nobody is waiting and it fits."""
        if self._waiting or not self._fits(size):
            return False
        self._used += size
        return True

    async def take(self, size: int) -> None:
        if self.try_take(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(size)  # it was granted in the same moment
            else:
                self._waiting = deque(entry for entry in self._waiting if entry[1] is not turn)
                self._grant()
            raise

    def give(self, size: int) -> None:
        self._used -= size
        self._grant()

    def _fits(self, size: int) -> bool:
        return self._used == 0 or self._used + size <= self._limit

    def _grant(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size, turn = self._waiting.popleft()
            if not turn.done():
                self._used += size
                turn.set_result(None)
