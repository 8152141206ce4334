"""Inode numbers are given out once."""

import asyncio

import pytest
from threefs_meta.store.inode_numbers import BLOCK, InodeAllocator

from tests.harness.clocks import SteppedClock
from tests.harness.seeded_random import SeededRandom
from threefs.kv.memory import MemoryEngine


@pytest.mark.parametrize("seed", range(4))
async def test_no_number_twice_even_with_two_services_and_a_bad_store(seed: int) -> None:
    clock, random = SteppedClock(), SeededRandom(seed)
    engine = MemoryEngine(random=random, conflict_rate=0.3, unknown_rate=0.3, clock=clock)
    both = [InodeAllocator(engine, clock=clock, random=random) for _ in range(2)]
    takes = [allocator.allocate() for _ in range(BLOCK + 10) for allocator in both]
    numbers = await asyncio.gather(*takes)
    assert len(set(numbers)) == len(numbers)
    assert min(numbers) > 1, "1 is the root"


async def test_a_restart_goes_on_behind_the_block() -> None:
    engine = MemoryEngine()
    assert await InodeAllocator(engine).allocate() == 2
    assert await InodeAllocator(engine).allocate() == 2 + BLOCK


async def test_one_transaction_per_block() -> None:
    engine = MemoryEngine()
    allocator = InodeAllocator(engine)
    await asyncio.gather(*(allocator.allocate() for _ in range(BLOCK)))
    assert engine._history.version == 1
