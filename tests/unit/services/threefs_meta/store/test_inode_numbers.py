"""Inode numbers are given out once."""

import asyncio
import gc
from typing import Any

import pytest
from threefs_meta.store import keys
from threefs_meta.store.counters import read_counter
from threefs_meta.store.inode_numbers import BLOCK, InodeAllocator, OutOfNumbers, TakenNumbers

from tests.harness.clocks import SteppedClock
from tests.harness.many_changes import changed, create_of
from tests.harness.meta_harness import MetaBench, new_number, reported
from tests.harness.seeded_random import SeededRandom
from threefs.background import cancel_and_wait
from threefs.env.eager import StartedCoroutine
from threefs.errors import ThreefsError, Unavailable
from threefs.kv.engine_api import Transaction
from threefs.kv.memory import MemoryEngine
from threefs.kv.retry import Outcome


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_no_number_twice_even_with_two_services_and_a_bad_store(seed: int) -> None:
    clock, random = SteppedClock(), SeededRandom(seed)
    engine = MemoryEngine(random=random, conflict_rate=0.3, unknown_rate=0.3, clock=clock)
    both = [InodeAllocator(engine, report=reported, clock=clock, random=random) for _ in range(2)]
    takes = [new_number(allocator) for _ in range(BLOCK + 10) for allocator in both]
    numbers = await asyncio.gather(*takes)
    assert len(set(numbers)) == len(numbers)
    assert min(numbers) > 1, "1 is the root"


async def test_a_restart_goes_on_behind_the_block() -> None:
    engine = MemoryEngine()
    assert await new_number(InodeAllocator(engine, report=reported)) == 2
    assert await new_number(InodeAllocator(engine, report=reported)) == 2 + BLOCK


async def test_one_transaction_per_block() -> None:
    engine = MemoryEngine()
    allocator = InodeAllocator(engine, report=reported)
    await asyncio.gather(*(new_number(allocator) for _ in range(BLOCK)))
    assert engine._history.version == 1


async def test_no_number_is_given_out_before_the_manager_knows_its_block() -> None:
    engine, told = MemoryEngine(), []

    async def report() -> None:
        told.append(await read_counter(engine.begin(), keys.NEXT_INODE))
        if len(told) == 1:
            raise Unavailable("no manager answers")

    allocator = InodeAllocator(engine, report=report)
    with pytest.raises(Unavailable):
        await new_number(allocator)
    assert allocator.left == 0
    assert await new_number(allocator) == 2, "the block that was reserved is used"
    assert told == [2 + BLOCK, 2 + BLOCK]


async def test_a_block_that_was_never_used_counts_as_removed() -> None:
    engine = MemoryEngine()

    async def report() -> None:
        raise Unavailable("no manager answers")

    allocator = InodeAllocator(engine, report=report)
    with pytest.raises(Unavailable):
        await new_number(allocator)
    await allocator.close()
    assert await read_counter(engine.begin(), keys.REMOVED_INODES) == BLOCK


async def test_a_call_that_no_task_has_begun_can_connect_to_the_manager() -> None:
    """Calls begin so where the store is embedded. While the manager was away, those that needed numbers ended as if by
    a mistake of the program, and so with an unknown outcome."""
    reports = iter((False, True))

    async def report() -> None:
        async with asyncio.timeout(1):  # as connecting does
            await asyncio.sleep(0)
        if not next(reports):
            raise Unavailable("no manager answers")

    def begin() -> None:
        call = new_number(allocator)
        try:
            begun.set_result(asyncio.ensure_future(StartedCoroutine(call, call.send(None))))
        except RuntimeError as error:  # there is no task for its timeout
            begun.set_exception(error)

    allocator = InodeAllocator(MemoryEngine(), report=report)
    with pytest.raises(Unavailable):
        await new_number(allocator)
    loop = asyncio.get_running_loop()
    begun: asyncio.Future[asyncio.Future[int]] = loop.create_future()
    loop.call_soon(begin)
    assert await (await begun) == 2


async def test_no_transaction_waits_for_numbers(bench: MetaBench) -> None:
    """With PostgreSQL each would keep its connection, and when all did so, none was left to get numbers by."""
    allocator, running = bench.context.allocator, 0

    async def report() -> None:
        for _ in range(100):
            if not running:
                return
            await asyncio.sleep(0)
        raise AssertionError(f"{running} transactions wait")

    async def work(tx: Transaction) -> int:
        nonlocal running
        running += 1
        try:
            await tx.get(keys.TICK)
            return await allocator.allocate()
        finally:
            running -= 1

    allocator._report = report
    numbers = await asyncio.gather(*(bench.context.transact(work) for _ in range(30)))
    assert len(set(numbers)) == 30


async def test_a_block_is_got_before_the_last_one_is_used_up() -> None:
    allocator = InodeAllocator(MemoryEngine(), report=reported)
    await allocator.refill(BLOCK + 1)
    assert allocator.left == 2 * BLOCK
    numbers = [await allocator.allocate() for _ in range(2 * BLOCK)]
    assert len(set(numbers)) == 2 * BLOCK and not allocator.left
    with pytest.raises(OutOfNumbers):
        await allocator.allocate()


async def test_calls_at_the_same_time_share_an_attempt_that_fails() -> None:
    """Each waited for the manager when those before it had given up."""
    attempts = 0

    async def report() -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise Unavailable("no manager answers")

    allocator = InodeAllocator(MemoryEngine(), report=report)
    errors = await asyncio.gather(*(allocator.refill(least) for least in range(1, 13)), return_exceptions=True)
    assert {type(error) for error in errors} == {Unavailable} and attempts == 1
    await allocator.refill()
    assert allocator.left == BLOCK and attempts == 2, "a later call makes an attempt of its own"


class _Manager:
    """Reports wait until `answer`."""

    def __init__(self) -> None:
        self.calls = 0
        self.asked = asyncio.Event()
        self._answers = asyncio.Queue[ThreefsError | None]()

    async def report(self) -> None:
        self.calls += 1
        self.asked.set()
        if error := await self._answers.get():
            raise error

    def answer(self, error: ThreefsError | None = None) -> None:
        self._answers.put_nowait(error)


async def test_an_attempt_outlives_the_call_that_began_it() -> None:
    manager = _Manager()
    allocator = InodeAllocator(MemoryEngine(), report=manager.report)
    first, second = (asyncio.ensure_future(allocator.refill()) for _ in range(2))
    await manager.asked.wait()
    await cancel_and_wait(first)
    manager.answer()
    await second
    assert first.cancelled() and allocator.left == BLOCK and manager.calls == 1


async def test_an_attempt_that_fails_without_a_caller_is_not_reported_as_an_error_of_the_program() -> None:
    reported_errors = list[Any]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported_errors.append(context))
    manager = _Manager()
    allocator = InodeAllocator(MemoryEngine(), report=manager.report)
    call = asyncio.ensure_future(allocator.refill())
    await manager.asked.wait()
    await cancel_and_wait(call)
    manager.answer(Unavailable("no manager answers"))
    while allocator._refilling and not allocator._refilling.done():
        await asyncio.sleep(0)
    del call, allocator
    gc.collect()  # asyncio reports what nobody has asked for when the task is deleted
    assert not reported_errors


async def test_an_attempt_ends_with_the_allocator() -> None:
    engine, manager = MemoryEngine(), _Manager()
    allocator = InodeAllocator(engine, report=manager.report)
    call = asyncio.ensure_future(allocator.refill())
    await manager.asked.wait()
    await cancel_and_wait(call)
    await allocator.close()
    assert await read_counter(engine.begin(), keys.REMOVED_INODES) == BLOCK
    manager.answer()
    await asyncio.sleep(0)
    assert allocator.left == 0, "what was counted as removed is not given out"


async def test_what_a_failed_attempt_has_taken_is_given_out_again() -> None:
    allocator = InodeAllocator(MemoryEngine(), report=reported)
    await allocator.refill()
    numbers = TakenNumbers(allocator, Outcome())
    for _ in range(3):
        with numbers:  # then its commit conflicts
            taken = [await numbers.take(), await numbers.take()]
    with pytest.raises(Unavailable), numbers:
        taken = [await numbers.take(), await numbers.take()]
        raise Unavailable
    assert allocator.left == BLOCK
    with numbers:
        kept = await numbers.take()
        numbers.keep_step()
        undone = await numbers.take()
        numbers.undo_step()
    assert {kept, undone} == set(taken) and allocator.left == BLOCK - 1
    await allocator.close()
    assert not allocator.left
    assert await read_counter(allocator._engine.begin(), keys.REMOVED_INODES) == BLOCK - 1


async def test_a_change_that_needs_more_numbers_than_are_left_gets_them(bench: MetaBench) -> None:
    """What it has taken is given back, and is not enough for the next attempt."""
    allocator = bench.context.allocator
    await allocator.refill()
    while allocator.left > 3:
        await allocator.allocate()
    await bench.mkdir("/1/2/3/4/5", parents=True)
    assert allocator.left == BLOCK - 2


async def test_what_may_be_stored_is_not_given_out_again() -> None:
    allocator, outcome = InodeAllocator(MemoryEngine(), report=reported), Outcome()
    await allocator.refill()
    numbers = TakenNumbers(allocator, outcome)
    with numbers:
        taken = {await numbers.take()}
    outcome.maybe_committed = True
    for _ in range(3):
        with numbers:
            taken.add(await numbers.take())
    with pytest.raises(Unavailable), numbers:
        taken.add(await numbers.take())
        raise Unavailable
    assert len(taken) == 5 and allocator.left == BLOCK - 5


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.trouble(conflict_rate=0.3, unknown_rate=0.3)
async def test_no_number_twice_beside_changes_that_fail(bench: MetaBench, seed: int) -> None:
    await bench.mkdir("/full")
    await bench.set_quota("/full", limit_inodes=1)
    await bench.create("/full/file")
    await bench.count_all()
    batches = [
        changed(bench, *(create_of(f"/{place}/{n}-{m}") for m in range(9) for place in ("full", ""))) for n in range(9)
    ]
    singles = [bench.create(f"/{place}/{n}") for n in range(20) for place in ("full", "")]
    await asyncio.gather(*batches, *singles, return_exceptions=True)
    names = [name for name in await bench.names("/") if name != "full"]
    assert len(names) == 9 * 9 + 20
    assert len({(await bench.stat(f"/{name}")).inode for name in names}) == len(names)
