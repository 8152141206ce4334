"""What many ask for in the same turn of the loop is asked for once.

Programs that begin together look at the directories above their own at the same time. Nobody is given an answer that
was asked for in an earlier turn: what was changed here in between has been answered by then.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    def __init__(self, ask: Callable[[int], Awaitable[T]]) -> None:
        self._fetch = ask
        self._waiters: dict[int, list[asyncio.Future[T | None]]] = {}  # those who wait for the one who asks

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
        finally:  # if it has failed, or was given up, each asks for itself
            self._close(number, others)
            for other in others:
                if not other.done():
                    other.set_result(answer)

    def _close(self, number: int, others: "list[asyncio.Future[T | None]]") -> None:
        if self._waiters.get(number) is others:
            del self._waiters[number]
