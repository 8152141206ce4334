"""Services that share one metadata store start, report and go on at the same time."""

import asyncio
import itertools
from typing import Any

import pytest
from threefs_meta.lease.leases import ensure
from threefs_meta.store import keys
from threefs_meta.store.counters import increase
from threefs_meta.store.identity import EPOCH_BITS, _admission_request
from threefs_meta.store.inode_numbers import BLOCK, InodeAllocator

from tests.harness.meta_harness import new_number
from tests.harness.seeded_random import SeededRandom
from tests.unit.services.threefs_meta.store.test_identity import World, copied, restored, tick
from threefs.errors import StrangeStore, Unavailable
from threefs.kv import retry
from threefs.kv.memory import MemoryEngine
from threefs.rpc.methods import Method
from threefs.wire.records_pb2 import StoreRecord


async def test_services_of_one_store_do_not_take_each_other_for_copies() -> None:
    """The message of one is late: another one has told of a later tick of the same store meanwhile."""
    world, engine = World(), MemoryEngine()
    await world.service(engine).admit()
    await tick(engine, 3)
    late = await retry.run(engine, _admission_request)
    await tick(engine, 4)
    await world.service(engine).admit()
    with pytest.raises(StrangeStore):
        await world.managers.call(None, late, timeout_s=1)  # type: ignore[arg-type]
    world.managers.failures = [StrangeStore("a late message")]
    await world.service(engine).admit()


async def test_services_that_start_together_make_one_store() -> None:
    """One has found nothing, and asks the manager when another one has made the store and told it."""
    world, engine = World(), MemoryEngine()
    first, second = world.service(engine), world.service(engine)
    call = world.managers.call

    async def late(method: Method[Any, Any], request: Any, *, timeout_s: float) -> Any:
        world.managers.call = call  # type: ignore[method-assign]
        await first.admit()
        return await call(method, request, timeout_s=timeout_s)

    world.managers.call = late  # type: ignore[method-assign]
    await second.admit()
    assert second.record == first.record != StoreRecord()


@pytest.mark.parametrize("dies", [False, True])
async def test_a_service_that_starts_beside_another_one_on_a_restored_store_leaves_its_epoch(dies: bool) -> None:
    """Both have seen that the store was restored. One serves already when the manager hears of it from the other."""
    world = World()
    engine = MemoryEngine()
    await world.service(engine).admit()
    backup = await restored(engine)
    first, second = world.service(backup), world.service(backup)
    numbers = []
    call = world.managers.call

    async def late(method: Method[Any, Any], request: Any, *, timeout_s: float) -> Any:
        world.managers.call = call  # type: ignore[method-assign]
        await first.admit()
        numbers.append(await new_number(InodeAllocator(backup, report=first.report_inode_numbers)))
        try:
            return await call(method, request, timeout_s=timeout_s)
        finally:
            await first.report_inode_numbers()
            if dies:
                raise asyncio.CancelledError

    world.managers.call = late  # type: ignore[method-assign]
    start = asyncio.create_task(second.admit())
    await asyncio.wait([start])
    assert start.cancelled() is dies
    if not dies:
        numbers.append(await new_number(InodeAllocator(backup, report=second.report_inode_numbers)))
        assert first.record == second.record
    await first.report_inode_numbers()
    await world.service(backup).admit()
    assert [number >> EPOCH_BITS for number in numbers] == [1] * len(numbers)
    assert len(set(numbers)) == len(numbers)
    again = world.service(await restored(backup))
    await again.admit()
    assert again.record.epoch == 2, "a further restore gets an epoch of its own"


@pytest.mark.parametrize("seed", range(20))
async def test_services_that_start_at_once_on_a_restored_store_all_serve(seed: int) -> None:
    world, random = World(), SeededRandom(seed)
    engine = MemoryEngine()
    await world.service(engine).admit()
    for number in range(300):
        await retry.run(engine, lambda tx, n=number: ensure(tx, n.to_bytes(16, "big"), 1), replayable=True)  # type: ignore[misc]
    backup = await restored(engine)
    call = world.managers.call

    async def slow(method: Method[Any, Any], request: Any, *, timeout_s: float) -> Any:
        for _ in range(random.below(30)):
            await asyncio.sleep(0)
        reply = await call(method, request, timeout_s=timeout_s)
        for _ in range(random.below(30)):
            await asyncio.sleep(0)
        return reply

    async def start() -> list[int]:
        for _ in range(random.below(30)):
            await asyncio.sleep(0)
        service = world.service(backup)
        await service.admit()
        allocator = InodeAllocator(backup, report=service.report_inode_numbers)
        numbers = [await new_number(allocator) for _ in range(BLOCK + 1)]
        await service.report_inode_numbers()
        return numbers

    world.managers.call = slow  # type: ignore[method-assign]
    numbers = list(itertools.chain(*await asyncio.gather(*(start() for _ in range(3)))))
    assert len(set(numbers)) == len(numbers)
    assert {number >> EPOCH_BITS for number in numbers} == {1}


@pytest.mark.parametrize("counter", [keys.TICK, keys.NEXT_INODE])
async def test_a_report_that_others_overtake_each_time_is_made_again(counter: bytes) -> None:
    """The manager is slow, and others go on meanwhile: after five such reports the service ended."""
    world, engine = World(), MemoryEngine()
    slow, fast = world.service(engine), world.service(engine)
    await slow.admit()
    await fast.admit()
    call, overtaken = world.managers.call, 0

    async def late(method: Method[Any, Any], request: Any, *, timeout_s: float) -> Any:
        nonlocal overtaken
        if overtaken < 20:
            overtaken += 1
            world.managers.call = call  # type: ignore[method-assign]
            await retry.run(engine, lambda tx: increase(tx, counter, BLOCK), replayable=True)
            await fast.report_inode_numbers()
            world.managers.call = late  # type: ignore[method-assign]
        return await call(method, request, timeout_s=timeout_s)

    world.managers.call = late  # type: ignore[method-assign]
    await slow.report_inode_numbers()
    assert overtaken == 20


async def test_an_older_copy_that_goes_on_is_refused_for_good() -> None:
    world, engine = World(), MemoryEngine()
    await world.service(engine).admit()
    copy = await copied(engine)
    old = world.service(copy)
    await old.admit()
    await tick(engine, 1_000)
    await world.service(engine).admit()
    call = world.managers.call

    async def goes_on(method: Method[Any, Any], request: Any, *, timeout_s: float) -> Any:
        world.clock.advance(1.0)
        await retry.run(copy, lambda tx: increase(tx, keys.TICK, 1), replayable=True)
        return await call(method, request, timeout_s=timeout_s)

    world.managers.call = goes_on  # type: ignore[method-assign]
    with pytest.raises(StrangeStore, match="older copy"):
        await old.report_inode_numbers()


async def test_a_service_that_has_waited_long_for_the_manager_may_be_overtaken_all_the_same() -> None:
    world, engine = World(), MemoryEngine()
    await world.service(engine).admit()
    world.managers.failures = [Unavailable("no manager answers")] * 1000 + [StrangeStore("a late message")]
    await world.service(engine).admit()
