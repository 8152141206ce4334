import pytest
from threefs_manager.nodes.clock_rates import ClockRates

from tests.harness.clocks import SteppedClock
from tests.harness.seeded_random import SeededRandom


def run(rates: ClockRates, clock: SteppedClock, seconds: float, *, rate: float = 1.0, incarnation: int = 1) -> None:
    """Heartbeats of node 1 every 2 s, which travel for up to 0.3 s. Its clock began long before."""
    random = SeededRandom(7)
    until = clock.monotonic() + seconds
    while clock.monotonic() < until:
        sent_s = 1e6 + clock.monotonic() * rate
        delay_s = random.uniform(0.0, 0.3) * random.uniform(0.0, 1.0)
        clock.advance(delay_s)
        rates.on_heartbeat(1, incarnation, round(sent_s * 1000))
        clock.advance(2.0 - delay_s)


@pytest.mark.parametrize("rate", [1.0, 1.02, 0.98, 1.0001])
def test_the_rate_of_a_clock_is_found_in_spite_of_delays(rate: float) -> None:
    clock = SteppedClock()
    rates = ClockRates(clock)
    run(rates, clock, 3600, rate=rate)
    found = rates.parts_per_million(1)
    assert found is not None
    assert abs(found - (rate - 1) * 1e6) < 100


def test_nothing_is_said_too_early_nor_of_an_older_release() -> None:
    clock = SteppedClock()
    rates = ClockRates(clock)
    run(rates, clock, 500, rate=1.05)
    assert rates.parts_per_million(1) is None
    rates.on_heartbeat(2, 1, 0)
    assert rates.parts_per_million(2) is None


def test_a_clock_that_was_mended_is_sound_again() -> None:
    clock = SteppedClock()
    rates = ClockRates(clock)
    run(rates, clock, 3600, rate=1.02)
    run(rates, clock, 9000, rate=1.0, incarnation=2)
    found = rates.parts_per_million(1)
    assert found is not None and abs(found) < 100


def test_another_process_begins_anew() -> None:
    """It may run on another machine."""
    clock = SteppedClock()
    rates = ClockRates(clock)
    run(rates, clock, 3600, rate=1.02)
    run(rates, clock, 10, incarnation=2)
    assert rates.parts_per_million(1) is None
