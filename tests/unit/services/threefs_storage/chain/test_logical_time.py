"""The time of a chain never runs ahead of real time."""

from threefs_storage.chain.logical_time import LogicalTime

from tests.harness.clocks import SteppedClock


def test_it_counts_whole_minutes_from_where_it_was() -> None:
    clock = SteppedClock()
    age = LogicalTime(clock, 7)
    seen = []
    for _ in range(300):
        clock.advance(1)
        seen.append(age.now)
    assert seen[58] == 7 and seen[59] == 8 and seen[-1] == 12


def test_it_goes_on_from_a_later_time_and_not_from_an_earlier_one() -> None:
    clock = SteppedClock()
    age = LogicalTime(clock, 7)
    clock.advance(59)
    age.observe(20)
    clock.advance(59)
    assert age.now == 20, "no part of a minute is counted twice"
    age.observe(3)
    clock.advance(1)
    assert age.now == 21


def test_the_time_of_a_suspension_does_not_count() -> None:
    """Nobody has closed the connections meanwhile, so a write of before may come when all go on."""
    clock = SteppedClock()
    age = LogicalTime(clock, 7)
    clock.advance(30)
    assert age.now == 7
    clock.advance(3 * 3600)
    assert age.now == 7
    clock.advance(60)
    assert age.now == 8
