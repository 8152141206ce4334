"""How busy connections share the steps of the loop, on a clock that only their work moves."""

import asyncio

import pytest

from threefs.rpc.connection_turns import Turns


class Work:
    """Turns of so many seconds each, which are noted."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns = Turns(lambda: self.now)
        self.done: list[str] = []

    def take(self, name: str, seconds: float = 0.008, *, first: bool = False) -> None:
        if not self.turns.begin():
            self.turns.wait(lambda: self.take(name, seconds, first=first), first=first)
            return
        self.now += seconds
        self.done.append(name)
        self.turns.end()


async def test_what_a_step_has_no_time_for_comes_in_the_next_ones_in_its_order() -> None:
    work, seen = Work(), []
    for name in "abcdefgh":
        work.take(name)
    while len(work.done) < 8:
        seen.append("".join(work.done))
        await asyncio.sleep(0)
    assert seen == ["abc", "abcdef"] and work.done == [*"abcdefgh"]


async def test_who_waits_comes_before_who_comes_later() -> None:
    work = Work()
    for name in "abcdefg":
        work.take(name)
    await asyncio.sleep(0)
    work.take("late")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert work.done == [*"abcdefg", "late"]


async def test_those_that_go_first_get_every_other_turn() -> None:
    """A HELLO, or a heartbeat, waited for hundreds of busy connections."""
    work = Work()
    for name in "abcdefgh":
        work.take(name)
    for name in "ABCDEFG":
        work.take(name, first=True)
    while len(work.done) < 15:
        await asyncio.sleep(0)
    assert "".join(work.done) == "abcAdBeCfDgEhFG"


async def test_a_turn_is_over_after_a_while_and_work_that_takes_no_time_never_waits() -> None:
    work = Work()
    assert work.turns.begin() and not work.turns.is_over()
    work.now += 0.006
    assert work.turns.is_over()
    work.turns.end()
    for number in range(10_000):
        work.take(str(number), 0.0)
    assert len(work.done) == 10_000


@pytest.mark.parametrize("loop", ["asyncio"])
async def test_a_turn_that_breaks_does_not_keep_the_others_from_theirs(loop: str) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    work = Work()

    def broken() -> None:
        raise ZeroDivisionError

    work.turns.wait(broken)
    work.turns.wait(lambda: work.take("after"))
    for _ in range(4):
        await asyncio.sleep(0)
    assert work.done == ["after"]
