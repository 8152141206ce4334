import asyncio

from threefs_storage.scheduling.adjustable_pause import LOOK_S, pause

from tests.harness.clocks import SteppedClock


async def test_it_lasts_from_its_begin() -> None:
    clock = SteppedClock(100.0)
    await pause(clock, 99.0, lambda: 3.0)
    assert clock.monotonic() == 102.0
    await pause(clock, 50.0, lambda: 3.0)
    assert clock.monotonic() == 102.0, "its end had passed"
    await pause(clock, 102.0, lambda: 1000.0)
    assert clock.monotonic() == 1102.0


async def test_a_new_length_counts_while_it_lasts() -> None:
    clock, length_s = SteppedClock(0.0, sleepers_wait=True), 86_400.0
    waiting = asyncio.create_task(pause(clock, 0.0, lambda: length_s))
    await clock.pass_by(100.0)
    assert not waiting.done()
    length_s = 60.0
    await clock.pass_by(LOOK_S + 0.1)
    assert waiting.done()
