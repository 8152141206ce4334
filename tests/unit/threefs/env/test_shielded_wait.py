import asyncio
import gc
from typing import Any

import pytest

from threefs.background import cancel_and_wait
from threefs.env.shielded_wait import shielded


async def test_each_waiter_gets_what_the_future_ends_with() -> None:
    future = asyncio.get_running_loop().create_future()
    waiting = [asyncio.ensure_future(shielded(future)) for _ in range(3)]
    await asyncio.sleep(0)
    await cancel_and_wait(waiting[1])
    assert not future.done(), "it goes on without a waiter"
    future.set_result(5)
    assert [await waiting[0], await waiting[2], await shielded(future)] == [5, 5, 5]


async def test_a_failure_is_that_of_the_waiters_alone() -> None:
    loop, reported = asyncio.get_running_loop(), list[Any]()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    future = loop.create_future()
    waiting = [asyncio.ensure_future(shielded(future)) for _ in range(2)]
    await asyncio.sleep(0)
    await cancel_and_wait(waiting[0])
    future.set_exception(OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        await waiting[1]
    assert not reported, "as asyncio.shield does from Python 3.14 on"


@pytest.mark.parametrize("when", ["later", "in the same turn", "never"])
async def test_what_the_only_waiter_does_not_get_is_no_error_of_the_program(when: str) -> None:
    """The log said with a traceback that it was never retrieved."""
    loop, reported = asyncio.get_running_loop(), list[Any]()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    future = loop.create_future()
    waiting = asyncio.ensure_future(shielded(future))
    await asyncio.sleep(0)
    if when == "in the same turn":
        future.set_exception(OSError("gone"))
        await asyncio.sleep(0)  # the waiter is to run in the next turn
    await cancel_and_wait(waiting)
    if when == "later":
        future.set_exception(OSError("gone"))
    elif when == "never":
        future.cancel()
    await asyncio.sleep(0)
    del future, waiting
    gc.collect()
    assert not reported


async def test_a_future_that_is_cancelled_cancels_its_waiters() -> None:
    future = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(shielded(future))
    await asyncio.sleep(0)
    future.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
