import asyncio

import pytest
from threefs_bench.load import task_slots
from threefs_bench.load.task_slots import TaskSlots

from threefs.env.clock import CLOCK


async def test_the_first_error_is_raised_when_all_have_ended() -> None:
    slots, ended = TaskSlots(), []

    async def body(number: int) -> None:
        await asyncio.sleep(0)
        ended.append(number)
        if number:
            raise ValueError(number)

    with pytest.raises(ValueError, match="1"):
        await slots.run(body(number) for number in range(3))
    assert sorted(ended) == [0, 1, 2]


async def test_a_slot_that_hangs_is_cancelled_some_time_after_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_slots, "GRACE_S", 0.01)
    slots = TaskSlots()

    async def hang() -> None:
        await asyncio.Event().wait()

    asyncio.get_running_loop().call_later(0.01, slots.stop)
    await slots.run([hang()])
    assert slots.stopped


async def test_a_pause_ends_with_the_stop() -> None:
    slots = TaskSlots()
    assert await slots.pause_until(CLOCK.monotonic() + 0.01)
    assert await slots.pause_until(0.0)
    asyncio.get_running_loop().call_later(0.01, slots.stop)
    assert not await slots.pause_until(CLOCK.monotonic() + 3600)
