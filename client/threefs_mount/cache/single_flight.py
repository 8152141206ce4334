"""Equal questions of one turn of the loop are sent to the cluster once.

Programs that start together look up the same parent directories at the same time. An answer is shared only within one
turn: a change that was answered in between must be visible to the next question.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    def __init__(self, fetch: Callable[[int], Awaitable[T]]) -> None:
        self._fetch = fetch
        self._waiters: dict[int, list[asyncio.Future[T | None]]] = {}  # of the calls that share one fetch

    async def call(self, number: int) -> T:
        loop = asyncio.get_running_loop()
        others = self._waiters.get(number)
        if others is not None:
            future: asyncio.Future[T | None] = loop.create_future()
            others.append(future)
            shared = await future
            return shared if shared is not None else await self.call(number)
        others = self._waiters[number] = []
        loop.call_soon(self._close, number, others)
        answer: T | None = None
        try:
            answer = await self._fetch(number)
            return answer
        finally:  # if it failed or was cancelled, each waiting call fetches for itself
            self._close(number, others)
            for other in others:
                if not other.done():
                    other.set_result(answer)

    def _close(self, number: int, others: "list[asyncio.Future[T | None]]") -> None:
        if self._waiters.get(number) is others:
            del self._waiters[number]
