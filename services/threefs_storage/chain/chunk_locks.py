"""One lock per chunk, there only while somebody holds or wants it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from threefs.errors import DeadlineExceeded
from threefs.ids import ChunkId


class ChunkLocks:
    def __init__(self) -> None:
        self._locks: dict[ChunkId, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def hold(self, chunk: ChunkId, wait_s: float) -> AsyncIterator[None]:
        """Raises DeadlineExceeded."""
        lock, users = self._locks.get(chunk) or (asyncio.Lock(), 0)
        self._locks[chunk] = (lock, users + 1)
        try:
            try:
                if users:
                    async with asyncio.timeout(wait_s):
                        await lock.acquire()
                else:
                    await lock.acquire()
            except TimeoutError:
                raise DeadlineExceeded(f"other changes of chunk {chunk} took all the time") from None
            try:
                yield
            finally:
                lock.release()
        finally:
            _, users = self._locks[chunk]
            if users == 1:
                del self._locks[chunk]
            else:
                self._locks[chunk] = (lock, users - 1)

    def __contains__(self, chunk: ChunkId) -> bool:
        """Whether somebody holds or wants it."""
        return chunk in self._locks

    def __iter__(self) -> Iterator[ChunkId]:
        """Chunks whose lock somebody holds or wants."""
        return iter(self._locks)

    def __len__(self) -> int:
        return len(self._locks)
