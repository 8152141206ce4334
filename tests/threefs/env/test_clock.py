import asyncio

from threefs.env.clock import CLOCK


def test_monotonic_time_does_not_go_back_and_sleep_lets_it_pass() -> None:
    before = CLOCK.monotonic()
    asyncio.run(CLOCK.sleep(0.001))
    assert CLOCK.monotonic() > before
    assert CLOCK.wall_ns() > 1_600_000_000 * 10**9
