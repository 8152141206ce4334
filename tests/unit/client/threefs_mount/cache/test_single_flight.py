import asyncio
from collections.abc import Awaitable, Callable

import pytest
from threefs_mount.cache.single_flight import SingleFlight

from threefs.errors import Unavailable


class Cluster:
    """Answers how often it was asked, once the gate is open."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.failing = 0
        self.gate = asyncio.Event()
        self.questions = SingleFlight(self.ask)

    async def ask(self, number: int) -> int:
        self.asked.append(number)
        count = len(self.asked)
        await self.gate.wait()
        await asyncio.sleep(0)
        if self.failing:
            self.failing -= 1
            raise Unavailable("nobody is there")
        return count


def with_cluster(test: Callable[[Cluster], Awaitable[None]]) -> Callable[[], None]:
    """Runs a test with a cluster of its own."""

    def run() -> None:
        scene(test)

    return run


def scene(test: Callable[[Cluster], Awaitable[None]]) -> None:
    async def run() -> None:
        await asyncio.wait_for(test(Cluster()), 10)

    asyncio.run(run())


@with_cluster
async def test_one_question_for_all_of_a_turn_and_none_for_those_behind(cluster: Cluster) -> None:
    tasks = [asyncio.create_task(cluster.questions.call(number)) for number in (7, 7, 8, 7)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    later = asyncio.create_task(cluster.questions.call(7))
    await asyncio.sleep(0)
    cluster.gate.set()
    assert await asyncio.gather(*tasks, later) == [1, 1, 2, 1, 3]
    assert cluster.asked == [7, 8, 7]


@with_cluster
async def test_who_gives_up_takes_nobody_along(cluster: Cluster) -> None:
    for cancelled in (0, 1):
        cluster.gate.clear()
        tasks = [asyncio.create_task(cluster.questions.call(7)) for _ in range(4)]
        await asyncio.sleep(0)
        tasks[cancelled].cancel()
        await asyncio.sleep(0)
        cluster.gate.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(found.pop(cancelled), asyncio.CancelledError)
        assert found == [len(cluster.asked)] * 3


@with_cluster
async def test_a_failure_is_only_of_the_one_who_asked(cluster: Cluster) -> None:
    cluster.failing = 2
    tasks = [asyncio.create_task(cluster.questions.call(7)) for _ in range(4)]
    await asyncio.sleep(0)
    cluster.gate.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in found] == [Unavailable, Unavailable, int, int] and cluster.asked == [7, 7, 7]


@with_cluster
async def test_a_question_that_fails_at_once_leaves_nothing_behind(cluster: Cluster) -> None:
    """Or who comes in the same turn would wait for ever."""

    async def fail(number: int) -> int:
        raise Unavailable("nobody is there")

    questions = SingleFlight(fail)
    for _ in range(2):
        with pytest.raises(Unavailable):
            await questions.call(7)
