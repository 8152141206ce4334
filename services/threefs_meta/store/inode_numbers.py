"""Inode numbers: reserved in the store in blocks, given out from memory. The rest of a block is never used.

A number is given out when the manager knows that its block is reserved: an older copy of the store, which would reserve
the block again, is refused from then on (`identity.py`).

What a transaction has taken, and certainly not stored, others get: a number that is lost counts as an inode.

A transaction that finds no number left ends, and begins again when there is another block. If it waited, it would keep
what it holds of the store meanwhile, and as many transactions as there are connections would wait for one more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from threefs.background import cancel_and_wait
from threefs.env.clock import CLOCK, Clock
from threefs.env.random import RANDOM, Random
from threefs.env.shielded_wait import shielded
from threefs.errors import Corrupt
from threefs.ids import ROOT
from threefs.kv import retry
from threefs.kv.engine_api import Engine, Transaction
from threefs.kv.retry import Outcome
from threefs.telemetry.damaged_records import DamagedRecords
from threefs_meta.store import keys
from threefs_meta.store.counters import increase, raise_to

BLOCK = 4096


async def count_removed(tx: Transaction, removed: int, damaged: DamagedRecords) -> None:
    """The count is shown, and nothing else depends on it: a damaged one stops nothing."""
    try:
        if removed > 0:
            await increase(tx, keys.REMOVED_INODES, removed)
    except Corrupt as error:
        damaged.pass_over(keys.REMOVED_INODES, error, "removed inodes cannot be counted")


class OutOfNumbers(Exception):
    """No number is left. The transaction is to begin again after `InodeAllocator.refill`, which is called outside."""

    def __init__(self, least: int = 1) -> None:
        super().__init__(least)
        self.least = least  # so many are needed then, with those that were taken before


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
        self._following: list[tuple[int, int]] = []  # blocks for when this one is used up
        self._given_back: list[int] = []
        self._unreported: tuple[int, int] | None = None  # a block that is reserved, and not yet known to the manager
        self._refilling: asyncio.Task[None] | None = None  # the last attempt to get a block

    async def allocate(self) -> int:
        """A number that no inode has or has ever had. Raises OutOfNumbers."""
        if self._given_back:
            return self._given_back.pop()
        if self._next == self._end:
            if not self._following:
                raise OutOfNumbers
            self._next, self._end = self._following.pop(0)
        number = self._next
        self._next += 1
        assert ROOT < number < self._end, "a number is given out once, from the block of this service"
        return number

    def give_back(self, numbers: Sequence[int]) -> None:
        """No inode with these numbers is stored, or can be yet."""
        assert all(ROOT < number < self._end for number in numbers), "only what was given out is given back"
        self._given_back += numbers

    async def refill(self, least: int = 1) -> None:
        """Have so many numbers to give out. Raises the errors of a manager that does not answer.

        Calls at the same time share an attempt, and its error: in a row they would each wait for the manager.
        """
        while self.left < least:
            if self._refilling is None or self._refilling.done():
                self._refilling = asyncio.create_task(self._refill())
                self._refilling.add_done_callback(_retrieve)
            await shielded(self._refilling)

    @property
    def left(self) -> int:
        """How many numbers can be given out at once."""
        return self._end - self._next + sum(end - first for first, end in self._following) + len(self._given_back)

    async def close(self) -> None:
        """Count the rest of the block as removed, so that the number of inodes is right. After a crash it is too
        high."""
        if self._refilling is not None:  # all its callers may be gone
            await cancel_and_wait(self._refilling)
        left, self._next = self.left, self._end
        self._following.clear()
        self._given_back.clear()
        if self._unreported is not None:
            left += BLOCK
            self._unreported = None

        async def work(tx: Transaction) -> None:
            await increase(tx, keys.REMOVED_INODES, left)

        if left:
            await retry.run(self._engine, work, clock=self._clock, random=self._random)

    async def _refill(self) -> None:
        async def reserve(tx: Transaction) -> int:
            await raise_to(tx, keys.NEXT_INODE, ROOT + 1)
            return await increase(tx, keys.NEXT_INODE, BLOCK) - BLOCK

        if self._unreported is None:
            # After an unknown outcome this reserves another block: one may be lost, and none is given out twice.
            first = await retry.run(self._engine, reserve, clock=self._clock, random=self._random, replayable=True)
            self._unreported = first, first + BLOCK
        await self._report()
        self._following.append(self._unreported)
        self._unreported = None


class TakenNumbers:
    """The numbers that the attempts of a change take. Each attempt runs `with` this."""

    def __init__(self, allocator: InodeAllocator, outcome: Outcome) -> None:
        self._allocator = allocator
        self._outcome = outcome
        self._taken: list[int] = []  # by the last attempt
        self._kept = 0  # so many of them in steps that were not undone

    async def take(self) -> int:
        """Raises OutOfNumbers."""
        try:
            number = await self._allocator.allocate()
        except OutOfNumbers:
            raise OutOfNumbers(len(self._taken) + 1) from None
        self._taken.append(number)
        return number

    def keep_step(self) -> None:
        self._kept = len(self._taken)

    def undo_step(self) -> None:
        """What the last step of the attempt has written is taken back."""
        self._allocator.give_back(self._taken[self._kept :])
        del self._taken[self._kept :]

    def __enter__(self) -> None:
        self.end_attempt()

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if failed is not None:
            self.end_attempt()  # before its commit

    def end_attempt(self) -> None:
        """The last attempt has ended, and has surely stored nothing, unless the outcome of the change is unknown."""
        if not self._outcome.maybe_committed:
            self._allocator.give_back(self._taken)
        self._taken = []
        self._kept = 0


def _retrieve(attempt: "asyncio.Task[None]") -> None:
    if not attempt.cancelled():
        attempt.exception()  # its callers have raised it, or were cancelled
