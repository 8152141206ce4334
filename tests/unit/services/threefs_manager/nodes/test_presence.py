import asyncio
from collections.abc import Callable

import pytest
from threefs_manager.nodes.presence import PresenceCalls, nobody_listens

from tests.harness.clocks import SteppedClock
from threefs.background import cancel_and_wait
from threefs.env.net import Listener, RealNet, Stream
from threefs.errors import NotFound, NotPrimary, Unavailable


async def test_a_call_is_held_until_it_is_of_no_use() -> None:
    presence_calls = PresenceCalls()
    calls = [asyncio.create_task(presence_calls.wait_ended(node, 7)) for node in (1, 2)]
    await asyncio.sleep(0)
    presence_calls.end_others(1, but=7)
    presence_calls.end_others(2, but=8)
    with pytest.raises(NotFound, match="started anew"):
        await calls[1]
    assert not calls[0].done()
    presence_calls.end_all()
    presence_calls.end_all()
    with pytest.raises(NotPrimary):
        await calls[0]


async def test_a_call_whose_connection_is_lost_is_forgotten() -> None:
    presence_calls = PresenceCalls()
    call = asyncio.create_task(presence_calls.wait_ended(1, 7))
    await asyncio.sleep(0)
    await cancel_and_wait(call)
    presence_calls.end_all()


async def test_only_a_refusal_says_that_no_process_listens() -> None:
    net, clock = RealNet(), SteppedClock()
    listener = await net.listen("127.0.0.1", 0, lambda stream: stream.close())
    assert not await nobody_listens(net, listener.address, clock)
    listener.close()
    assert await nobody_listens(net, listener.address, clock)


class Silent:
    async def connect(self, address: str, timeout_s: float) -> Stream:
        raise Unavailable("no answer in time")

    async def listen(self, host: str, port: int, accept: Callable[[Stream], None]) -> Listener:
        raise AssertionError


def test_a_machine_that_says_nothing_says_nothing() -> None:
    assert not asyncio.run(nobody_listens(Silent(), "h:1", SteppedClock()))
