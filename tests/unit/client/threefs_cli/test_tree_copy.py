import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from threefs_cli.tree_copy import gather_bounded


def test_the_limit_of_concurrent_jobs_holds() -> None:
    running = peak = done = 0

    async def job() -> None:
        nonlocal running, peak, done
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0)
        running -= 1
        done += 1

    asyncio.run(gather_bounded((job() for _ in range(20)), 3))
    assert (done, peak) == (20, 3)


def test_the_first_error_cancels_the_rest_and_is_raised_as_itself() -> None:
    started = []

    async def job(number: int) -> None:
        started.append(number)
        if number == 2:
            raise FileNotFoundError("two")
        await asyncio.sleep(0)

    def jobs() -> Iterator[Coroutine[Any, Any, None]]:
        for number in range(1000):
            yield job(number)

    with pytest.raises(FileNotFoundError, match="two"):
        asyncio.run(gather_bounded(jobs(), 2))
    assert len(started) < 10
