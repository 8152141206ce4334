"""Bounded scratch buffers for whole chunks and checksum blocks, while a part of them is read or changed.

A change of a few bytes needs memory for its whole chunk, so a small request for many chunks could take any amount. The
bytes that are lent at a time are bounded, and other work waits. A holder of one buffer must not wait for another one of
the same kind.
"""

from threefs.byte_budget import ByteBudget
from threefs.env.buffers import BufferPool, size_class


class Scratch:
    """The buffers for one kind of work. One that is larger than the bound is lent alone."""

    def __init__(self, buffers: BufferPool, most_bytes: int) -> None:
        self._buffers = buffers
        self._budget = ByteBudget(most_bytes)

    @property
    def lent_bytes(self) -> int:
        return self._budget.used_bytes

    async def take(self, length_bytes: int) -> memoryview:
        """A buffer of the pool, as soon as the bound allows it. The whole buffer counts, not only what is asked for."""
        size = size_class(length_bytes)
        await self._budget.take(size)
        try:
            return self._buffers.take(length_bytes)
        except BaseException:  # the machine has no memory now
            self._budget.give(size)
            raise

    def give(self, buffer: memoryview) -> None:
        size = len(buffer)
        self._buffers.give(buffer)
        self._budget.give(size)


class ScratchShare:
    """What one target may take of the buffers of all targets, so that one whose work takes long leaves some to the
    others. A buffer that is larger than the share is lent alone."""

    def __init__(self, whole: Scratch, most_bytes: int) -> None:
        self._whole = whole
        self._budget = ByteBudget(most_bytes)

    @property
    def lent_bytes(self) -> int:
        return self._budget.used_bytes

    async def take(self, length_bytes: int) -> memoryview:
        """A buffer, as soon as both bounds allow it."""
        size = size_class(length_bytes)
        await self._budget.take(size)
        try:
            return await self._whole.take(length_bytes)
        except BaseException:
            self._budget.give(size)
            raise

    def give(self, buffer: memoryview) -> None:
        size = len(buffer)
        self._whole.give(buffer)
        self._budget.give(size)
