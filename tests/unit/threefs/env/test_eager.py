import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from threefs.env.eager import StartedCoroutine


async def goes_on(work: Coroutine[Any, Any, str]) -> str:
    """Begin it here, and go on with it in a task."""
    rest = StartedCoroutine(work, work.send(None))

    async def wait() -> str:
        return await rest

    return await asyncio.create_task(wait())


async def test_it_goes_on_where_it_waited() -> None:
    steps = []

    async def work(future: "asyncio.Future[str]") -> str:
        steps.append("begun")
        first = await future
        await asyncio.sleep(0)
        async with asyncio.timeout(10):  # in a task by now
            await asyncio.sleep(0.001)
        return first + "!"

    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, "done")
    going = goes_on(work(future))
    assert await going == "done!" and steps == ["begun"]


async def test_errors_and_cancellations_come_through() -> None:
    seen = []

    async def fails(future: "asyncio.Future[str]") -> str:
        try:
            return await future
        except BaseException as error:
            seen.append(type(error))
            raise

    loop = asyncio.get_running_loop()
    broken: asyncio.Future[str] = loop.create_future()
    loop.call_soon(broken.set_exception, KeyError("x"))
    with pytest.raises(KeyError):
        await goes_on(fails(broken))
    task = asyncio.create_task(goes_on(fails(loop.create_future())))
    await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == [KeyError, asyncio.CancelledError]
