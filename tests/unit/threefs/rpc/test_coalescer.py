"""Calls of the same time share messages, and none waits for another, fails for another or is lost."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from threefs.errors import Cancelled, NotFound, OutcomeUnknown
from threefs.rpc.coalescer import Coalescer


class Service:
    """Doubles numbers, once it is let."""

    def __init__(self) -> None:
        self.messages: list[tuple[Any, list[int]]] = []
        self.open = asyncio.Event()

    async def __call__(self, key: Any, calls: list[int]) -> list[Any]:
        self.messages.append((key, calls))
        await self.open.wait()
        if 666 in calls:
            raise OutcomeUnknown("it is gone")
        return [NotFound(f"no {call}") if call < 0 else 2 * call for call in calls]

    @property
    def sizes(self) -> list[int]:
        return [len(calls) for _, calls in self.messages]


def play(scene: Callable[[Coalescer, Service], Awaitable[None]]) -> None:
    async def run() -> None:
        service = Service()
        gathering = Coalescer(service)
        await scene(gathering, service)
        assert not gathering._queues, "what is over is forgotten"

    asyncio.run(run())


async def turns(count: int = 4) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_call_that_is_alone_goes_out_in_the_same_turn() -> None:
    async def scene(gathering: Coalescer, service: Service) -> None:
        service.open.set()
        first = gathering.add("k", 1)
        await turns(3)
        assert first.result() == 2
        assert service.messages == [("k", [1])]

    play(scene)


def test_calls_of_one_turn_share_messages_and_each_has_its_own_outcome() -> None:
    async def scene(gathering: Coalescer, service: Service) -> None:
        service.open.set()
        outcomes = await asyncio.gather(*(gathering.add("k", n - 3) for n in range(96)), return_exceptions=True)
        assert service.sizes == [48, 48]
        assert outcomes[3:] == [2 * n for n in range(93)]
        assert [str(error) for error in outcomes[:3]] == ["no -3", "no -2", "no -1"]

    play(scene)


def test_sequential_calls_may_pass() -> None:
    async def scene(gathering: Coalescer, service: Service) -> None:
        service.open.set()
        assert not gathering.try_bypass(), "nothing is known yet"
        await gathering.add("k", 1)
        await turns()
        for _ in range(3):
            assert gathering.try_bypass()
            assert not gathering.try_bypass(), "that would be a second one"
            gathering.bypass_finished()

    play(scene)


def test_calls_that_come_together_do_not_pass_each_other() -> None:
    async def scene(gathering: Coalescer, service: Service) -> None:
        service.open.set()
        for size in (1, 3, 3):
            if gathering.try_bypass():
                gathering.bypass_finished()
            await asyncio.gather(*(gathering.add("k", n) for n in range(size)))
            await turns()
        assert service.sizes == [1, 3, 3] and not gathering.try_bypass()
        await gathering.add("k", 1)
        await turns()
        assert gathering.try_bypass()
        late = gathering.add("k", 2)
        gathering.bypass_finished()
        await late
        assert not gathering.try_bypass(), "it was not alone"

    play(scene)


def test_different_kinds_do_not_share() -> None:
    async def scene(gathering: Coalescer, service: Service) -> None:
        service.open.set()
        await asyncio.gather(*(gathering.add(n % 2, n) for n in range(8)))
        assert service.messages == [(0, [0, 2, 4, 6]), (1, [1, 3, 5, 7])]

    play(scene)


def test_only_while_enough_is_under_way_calls_are_kept() -> None:
    async def scene(gathering: Coalescer, service: Service) -> None:
        futures = []
        for n in range(10):
            futures.append(gathering.add("k", n))
            await turns()
        assert service.sizes == [1, 1]
        service.open.set()
        assert await asyncio.gather(*futures) == [2 * n for n in range(10)]
        assert service.sizes == [1, 1, 8]

    play(scene)


def test_a_caller_that_calls_again_goes_with_the_waiting_calls() -> None:
    async def scene(gathering: Coalescer, service: Service) -> None:
        async def worker() -> None:
            for n in range(2):
                await gathering.add("k", n)

        workers = []
        for _ in range(3):
            workers.append(asyncio.ensure_future(worker()))
            await turns()
        assert service.sizes == [1, 1]
        service.open.set()
        await asyncio.gather(*workers)
        assert service.sizes == [1, 1, 3, 1]

    play(scene)


def test_an_error_of_a_message_is_of_all_in_it() -> None:
    async def scene(gathering: Coalescer, service: Service) -> None:
        service.open.set()
        outcomes = await asyncio.gather(*(gathering.add("k", n) for n in (1, 666, 2)), return_exceptions=True)
        assert [type(one) for one in outcomes] == [OutcomeUnknown] * 3
        assert len({id(one) for one in outcomes}) == 3

    play(scene)


def test_a_cancelled_caller_does_not_stop_the_others() -> None:
    async def scene(gathering: Coalescer, service: Service) -> None:
        futures = [gathering.add("k", n) for n in range(3)]
        await turns()
        futures[1].cancel()
        service.open.set()
        assert await asyncio.gather(*futures, return_exceptions=True) != []
        assert [futures[0].result(), futures[2].result()] == [0, 4]

    play(scene)


def test_a_close_ends_what_waits() -> None:
    async def scene(gathering: Coalescer, service: Service) -> None:
        futures = []
        for n in range(5):
            futures.append(gathering.add("k", n))
            await turns()
        await gathering.close()
        for future in futures:
            with pytest.raises(Cancelled):
                await future
        assert gathering._unfinished == 0

    play(scene)
