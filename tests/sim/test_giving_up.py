"""An operation is given up at the wait that was drawn, and at no other one."""

import asyncio

import pytest

from tests.sim.giving_up import given_up
from threefs.errors import NotFound, OutcomeUnknown


@pytest.mark.parametrize("wait", [1, 2, 3, 4])
async def test_it_is_cancelled_at_that_wait(wait: int) -> None:
    done: list[int] = []

    async def inner() -> None:
        await asyncio.sleep(0.001)
        done.append(2)

    async def work() -> None:
        await asyncio.sleep(0)
        done.append(1)
        await inner()
        async with asyncio.timeout(10.0):
            await asyncio.sleep(0.001)
        done.append(3)

    assert await given_up(work(), wait) == (wait <= 3)
    assert done == [1, 2, 3][: wait - 1]


async def test_it_is_not_cancelled_where_it_may_not_be() -> None:
    assert not await given_up(asyncio.sleep(0.001), 1, may_be=lambda: False)


@pytest.mark.parametrize("wait", [1, 2])
async def test_an_outcome_is_unknown_only_to_who_has_given_up(wait: int) -> None:
    async def work() -> None:
        try:
            await asyncio.sleep(0.001)
        finally:
            raise OutcomeUnknown("nobody knows")

    if wait == 1:
        assert await given_up(work(), wait)
    else:
        with pytest.raises(OutcomeUnknown):
            await given_up(work(), wait)


async def test_other_errors_are_raised() -> None:
    async def work() -> None:
        try:
            await asyncio.sleep(0.001)
        finally:
            raise NotFound("it is not there")

    with pytest.raises(NotFound):
        await given_up(work(), 1)
