"""One lock per chunk. It exists only while a call holds it or waits for it."""

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
        """Hold the lock of a chunk. Raises DeadlineExceeded if it is not free within `wait_s`."""
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
                raise DeadlineExceeded(f"other changes of chunk {chunk} held its lock for {wait_s:.3f} s") from None
            try:
                yield
            finally:
                lock.release()
        finally:
            _, users = self._locks[chunk]
            assert users > 0, "each call counts itself once"
            if users == 1:
                del self._locks[chunk]
            else:
                self._locks[chunk] = (lock, users - 1)

    def __contains__(self, chunk: ChunkId) -> bool:
        """Whether a call holds the lock of this chunk or waits for it."""
        return chunk in self._locks

    def __iter__(self) -> Iterator[ChunkId]:
        """Chunks whose lock a call holds or waits for."""
        return iter(self._locks)

    def __len__(self) -> int:
        return len(self._locks)
