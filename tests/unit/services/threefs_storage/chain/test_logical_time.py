"""The time of a chain never runs ahead of real time."""

from threefs_storage.chain.logical_time import LogicalTime


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall_ns(self) -> int:
        raise AssertionError("clocks of machines are not compared")

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_it_counts_whole_minutes_from_where_it_was() -> None:
    clock = Clock()
    age = LogicalTime(clock, 7)
    seen = []
    for _ in range(300):
        clock.now += 1
        seen.append(age.now)
    assert seen[58] == 7 and seen[59] == 8 and seen[-1] == 12


def test_it_goes_on_from_a_later_time_and_not_from_an_earlier_one() -> None:
    clock = Clock()
    age = LogicalTime(clock, 7)
    clock.now += 59
    age.observe(20)
    clock.now += 59
    assert age.now == 20, "no part of a minute is counted twice"
    age.observe(3)
    clock.now += 1
    assert age.now == 21
