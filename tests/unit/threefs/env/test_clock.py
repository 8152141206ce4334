import asyncio
import time

from threefs.env.clock import CLOCK


def test_monotonic_time_does_not_go_back_and_sleep_lets_it_pass() -> None:
    before = CLOCK.monotonic()
    asyncio.run(CLOCK.sleep(0.001))
    assert CLOCK.monotonic() > before
    assert CLOCK.wall_ns() > 1_600_000_000 * 10**9


def test_a_suspended_machine_lets_time_pass() -> None:
    """CLOCK_MONOTONIC would not: it stands still, and a lease of before the suspension would still be held."""
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= CLOCK.monotonic() <= time.clock_gettime(time.CLOCK_BOOTTIME)
