"""The order in which reads that reach the end of a file are answered. No I/O happens here.

The kernel reads several parts of a file at once. It takes the first short answer for the end of the file, and fills the
pages of the other reads that were under way with zeros. If another client has just truncated the file, all of them are
short. So the read with the lowest offset must be answered first: then no program sees those zeros behind the end.
"""

import asyncio


class ShortReads:
    """The running reads of one file."""

    def __init__(self) -> None:
        self._running: dict[int, int] = {}  # number -> offset of a read that is not answered yet
        self._next = 0
        self._waiting: list[asyncio.Future[None]] = []

    def begin(self, offset: int) -> int:
        """A read begins. Call `end` with the number that this returns, in the step in which the read is answered."""
        self._next += 1
        self._running[self._next] = offset
        return self._next

    def end(self, number: int) -> None:
        del self._running[number]
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    async def wait_for_earlier(self, number: int) -> None:
        """This read is short: wait until no read with a lower offset is running."""
        offset = self._running[number]
        while min(self._running.values()) < offset:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future
