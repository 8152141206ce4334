"""Inode numbers: reserved in the store in blocks, given out from memory. The rest of a block is never used.

A number is given out when the manager knows that its block is reserved: an older copy of the store, which would reserve
the block again, is refused from then on (`identity.py`).
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from threefs.env.clock import CLOCK, Clock
from threefs.env.random import RANDOM, Random
from threefs.errors import Corrupt
from threefs.ids import ROOT
from threefs.kv import retry
from threefs.kv.engine_api import Engine, Transaction
from threefs.telemetry.damaged_records import DamagedRecords
from threefs_meta.store import keys
from threefs_meta.store.counters import increase, raise_to
from threefs_meta.store.transaction_numbers import TransactionNumbers

BLOCK = 4096

T = TypeVar("T")


async def count_removed(tx: Transaction, removed: int, damaged: DamagedRecords) -> None:
    """The count is shown, and nothing else depends on it: a damaged one stops nothing."""
    try:
        if removed > 0:
            await increase(tx, keys.REMOVED_INODES, removed)
    except Corrupt as error:
        damaged.pass_over(keys.REMOVED_INODES, error, "removed inodes cannot be counted")


class InodeAllocator:
    def __init__(
        self,
        engine: Engine,
        *,
        report: Callable[[], Awaitable[None]],
        clock: Clock = CLOCK,
        random: Random = RANDOM,
    ) -> None:
        """`report` tells the manager what is reserved in the store."""
        self._engine = engine
        self._report = report
        self._clock = clock
        self._random = random
        self._next = self._end = 0
        self._unreported: tuple[int, int] | None = None  # a block that is reserved, and not yet known to the manager
        self._refilling = asyncio.Lock()
        self._unused = 0  # given out, but no inode has got them; not yet counted as removed in the store
        self._numbers: dict[Transaction | None, TransactionNumbers] = {}  # of the attempts under way

    async def allocate(self, tx: Transaction | None = None) -> int:
        """A number that no inode has or has ever had, for an inode that `tx` makes.

        Raises the errors of a manager that does not answer.
        """
        while self._next == self._end:
            async with self._refilling:
                if self._next == self._end:
                    await self._refill()
        number = self._next
        self._next += 1
        assert ROOT < number < self._end, "a number is given out once, from the block of this service"
        if tx in self._numbers:
            self._numbers[tx].take()
        return number

    async def counting(
        self, numbers: TransactionNumbers, work: Callable[[Transaction], Awaitable[T]], tx: Transaction
    ) -> T:
        """Run an attempt of a transaction; `numbers` counts what it takes."""
        self._numbers[tx] = numbers
        try:
            return await work(tx)
        finally:
            del self._numbers[tx]

    def numbers_of(self, tx: Transaction) -> TransactionNumbers:
        """What counts the numbers of a transaction that runs."""
        return self._numbers[tx]

    def end(self, numbers: TransactionNumbers, error: Exception | None) -> None:
        """Of a transaction that was committed, or has failed: what it has not used counts as removed."""
        numbers.ended(error)
        self._unused += numbers.unused

    @property
    def left(self) -> int:
        """How many numbers of its blocks belong to no inode, and are not counted as removed in the store."""
        return self._end - self._next + self._unused

    async def close(self) -> None:
        """Count the rest of the block as removed, so that the number of inodes is right. After a crash it is too
        high."""
        left, self._next, self._unused = self.left, self._end, 0
        if self._unreported is not None:
            left += BLOCK
            self._unreported = None

        async def work(tx: Transaction) -> None:
            await increase(tx, keys.REMOVED_INODES, left)

        if left:
            await retry.run(self._engine, work, clock=self._clock, random=self._random)

    async def _refill(self) -> None:
        unused = self._unused

        async def reserve(tx: Transaction) -> int:
            if unused:
                with contextlib.suppress(Corrupt):  # the count is shown, and nothing else depends on it
                    await increase(tx, keys.REMOVED_INODES, unused)
            await raise_to(tx, keys.NEXT_INODE, ROOT + 1)
            return await increase(tx, keys.NEXT_INODE, BLOCK) - BLOCK

        if self._unreported is None:
            # After an unknown outcome this reserves another block: one may be lost, and none is given out twice.
            first = await retry.run(self._engine, reserve, clock=self._clock, random=self._random, replayable=True)
            self._unreported = first, first + BLOCK
            self._unused -= unused
        await self._report()
        self._next, self._end = self._unreported
        self._unreported = None
