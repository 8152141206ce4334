import asyncio

import pytest
from threefs_storage.engine.scratch import Scratch

from threefs.env.buffers import BufferPool


async def test_the_budget_is_bounded_and_a_cancelled_call_takes_nothing() -> None:
    pool = BufferPool()
    scratch = Scratch(pool, 12_288)
    first = await scratch.take(6000)
    waiting = [asyncio.create_task(scratch.take(size)) for size in (5000, 4000)]
    await asyncio.sleep(0)
    assert pool.lent == 1 and not any(task.done() for task in waiting), "first come, first served"
    waiting[0].cancel()
    second = await waiting[1]
    assert pool.lent == 2
    scratch.give(first)
    scratch.give(second)
    large = await scratch.take(1 << 20)
    scratch.give(large)
    assert pool.lent == 0 and await scratch.take(8192) is not None


async def test_a_buffer_that_the_machine_does_not_give_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = BufferPool()
    scratch = Scratch(pool, 8192)

    def refuse(length_bytes: int) -> memoryview:
        raise OSError("cannot allocate memory")

    with monkeypatch.context() as patched:
        patched.setattr(pool, "take", refuse)
        for _ in range(2):
            with pytest.raises(OSError, match="memory"):
                await scratch.take(8192)
    async with asyncio.timeout(1):
        scratch.give(await scratch.take(8192))
