import asyncio
from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from threefs import background
from threefs.background import BackgroundTasks

Deaths = list[tuple[str, BaseException | None]]


def run(body: Callable[[BackgroundTasks, Deaths], Awaitable[None]]) -> Deaths:
    deaths: Deaths = []

    async def main() -> None:
        background.on_death(lambda name, error: deaths.append((name, error)))
        await body(BackgroundTasks(), deaths)

    with capture_logs():
        asyncio.run(main())
    return deaths


async def for_ever() -> None:
    await asyncio.Event().wait()


async def fails() -> None:
    await asyncio.sleep(0)
    raise ZeroDivisionError


async def returns() -> None:
    await asyncio.sleep(0)


async def waits_for_what_is_cancelled() -> None:
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.cancel)
    await future


@pytest.mark.parametrize(
    ("work", "error"), [(fails, ZeroDivisionError), (returns, type(None)), (waits_for_what_is_cancelled, type(None))]
)
def test_the_end_of_a_task_is_a_death(work: Callable[[], "asyncio.Future[None]"], error: type) -> None:
    async def body(tasks: BackgroundTasks, deaths: Deaths) -> None:
        tasks.start("others", for_ever())
        tasks.start("this one", work())  # type: ignore[arg-type]
        while not deaths:
            await asyncio.sleep(0)
        await tasks.stop()

    (death,) = run(body)
    assert death[0] == "this one" and type(death[1]) is error


def test_what_its_owner_stops_has_not_died() -> None:
    async def body(tasks: BackgroundTasks, deaths: Deaths) -> None:
        async def stubborn() -> None:
            try:
                await for_ever()
            finally:
                raise ZeroDivisionError  # on the way out nobody is served any more

        ended = [tasks.start("one", for_ever()), tasks.start("two", stubborn())]
        await asyncio.sleep(0)
        await tasks.stop()
        assert all(task.done() for task in ended)
        await tasks.stop()

    assert run(body) == []


def test_the_end_of_the_loop_is_no_death() -> None:
    async def body(tasks: BackgroundTasks, deaths: Deaths) -> None:
        tasks.start("one", for_ever())
        await asyncio.sleep(0)

    assert run(body) == []


@pytest.mark.parametrize(("work", "dies"), [(returns, False), (fails, True), (waits_for_what_is_cancelled, True)])
def test_a_task_that_may_return_dies_only_of_an_error(work: Callable[[], "asyncio.Future[None]"], dies: bool) -> None:
    async def body(tasks: BackgroundTasks, deaths: Deaths) -> None:
        tasks.run("this one", work())  # type: ignore[arg-type]
        for _ in range(10):
            await asyncio.sleep(0)
        await tasks.stop()

    assert bool(run(body)) is dies


def test_work_that_may_fail_is_no_death_and_is_logged() -> None:
    async def main() -> list[object]:
        tasks = BackgroundTasks()
        tasks.attempt("this one", fails())
        tasks.attempt("another", returns())
        assert len(tasks) == 2
        with capture_logs() as logs:
            await tasks.join()
        assert not len(tasks)
        return [log["task"] for log in logs]

    assert asyncio.run(main()) == ["this one"]


def test_a_wait_for_all_tasks_includes_those_that_start_during_it() -> None:
    ended: list[str] = []

    async def body(tasks: BackgroundTasks, deaths: Deaths) -> None:
        async def second() -> None:
            await asyncio.sleep(0.01)
            ended.append("second")

        async def first() -> None:
            tasks.run("second", second())

        tasks.run("first", first())
        await tasks.join()

    assert run(body) == [] and ended == ["second"]


async def test_what_is_cancelled_has_ended_when_the_wait_for_it_ends() -> None:
    ended: list[int] = []

    async def tidies(number: int) -> None:
        try:
            await for_ever()
        finally:
            await asyncio.sleep(0.01)
            ended.append(number)

    tasks = [asyncio.create_task(tidies(number)) for number in range(3)]
    broken = asyncio.create_task(fails())
    await asyncio.sleep(0.01)
    await background.cancel_and_wait(*tasks, broken)
    assert ended == [0, 1, 2]
