"""In which order reads of one file that find its end are answered. No I/O happens here.

The kernel asks for several parts of a file at once. Where an answer is shorter than what it asked for, it takes that
for the end of the file, but only once for all the requests that were on their way: the first short answer counts, and
the pages of the others are filled up with zeros. If somebody has just cut the file, all of them are short. So the one
that begins first must be answered first: then nothing behind its end is shown to anybody.
"""

import asyncio


class ShortReads:
    """Of one file."""

    def __init__(self) -> None:
        self._running: dict[int, int] = {}  # offsets of the reads that have not been answered, by number
        self._next = 0
        self._waiting: list[asyncio.Future[None]] = []

    def begin(self, offset: int) -> int:
        """A read; call `end` with its number in the step in which it is answered."""
        self._next += 1
        self._running[self._next] = offset
        return self._next

    def end(self, number: int) -> None:
        del self._running[number]
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for one in waiting:
                if not one.done():
                    one.set_result(None)

    async def wait_for_earlier(self, number: int) -> None:
        """Wait until no other read is running that begins before this one, which is short."""
        offset = self._running[number]
        while min(self._running.values()) < offset:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future
