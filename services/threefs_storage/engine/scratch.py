"""Buffers for whole chunks and blocks while a part of them is read or changed.

A change of some bytes needs memory for its whole chunk, so a small request for many chunks would take very much of it.
Only so many bytes are lent at a time, the rest waits. Who has one must not wait for another one of the same kind.
"""

from threefs.budget import ByteBudget
from threefs.env.buffers import BufferPool


class Scratch:
    """Of one kind of work at one target. What is larger than the bound is lent alone."""

    def __init__(self, buffers: BufferPool, most_bytes: int) -> None:
        self._buffers = buffers
        self._budget = ByteBudget(most_bytes)

    async def take(self, length_bytes: int) -> memoryview:
        """As of the pool, when it is its turn."""
        await self._budget.take(length_bytes)
        return self._buffers.take(length_bytes)

    def give(self, buffer: memoryview, length_bytes: int) -> None:
        """Take back what was lent for that length."""
        self._buffers.give(buffer)
        self._budget.give(length_bytes)
