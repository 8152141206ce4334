"""Bounded scratch buffers for whole chunks and checksum blocks, while a part of them is read or changed.

A change of a few bytes needs memory for its whole chunk, so a small request for many chunks could take any amount. The
bytes that are lent at a time are bounded, and other work waits. A holder of one buffer must not wait for another one of
the same kind.
"""

from threefs.byte_budget import ByteBudget
from threefs.env.buffers import BufferPool


class Scratch:
    """The buffers for one kind of work at one target. One that is larger than the bound is lent alone."""

    def __init__(self, buffers: BufferPool, most_bytes: int) -> None:
        self._buffers = buffers
        self._budget = ByteBudget(most_bytes)

    async def take(self, length_bytes: int) -> memoryview:
        """A buffer of the pool, as soon as the bound allows it."""
        await self._budget.take(length_bytes)
        return self._buffers.take(length_bytes)

    def give(self, buffer: memoryview, length_bytes: int) -> None:
        """Give back a buffer that was lent for that length."""
        self._buffers.give(buffer)
        self._budget.give(length_bytes)
