"""The faults of the simulated network: each does what it says, and nothing more."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Concatenate, ParamSpec

import pytest

from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.loop import Process, SimLoop
from tests.harness.streams import failure, pair, receive, send
from tests.sim.net import Fabric, SimNet, SimStream
from threefs.env.net import Stream
from threefs.errors import Unavailable

GIVE_UP_S = 15.0


class Hosts:
    """Two hosts with a process each, and a connection between them."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.fabric = Fabric(loop, SeededRandom("net"))
        self.a, self.b = Process(loop, "a.1", "a"), Process(loop, "b.1", "b")
        self.near, self.far = SimNet(self.fabric, self.a), SimNet(self.fabric, self.b)

    async def connected(self) -> tuple[Stream, Stream, str]:
        """The end at a, the end at b, the address of b's listener."""

        async def accept(net: SimNet) -> tuple[str, asyncio.Queue[Stream]]:
            accepted: asyncio.Queue[Stream] = asyncio.Queue()
            return (await net.listen("b", 0, accepted.put_nowait)).address, accepted

        address, accepted = await self.b.start(accept(self.far))
        return await self.a.start(self.near.connect(address, 5)), await accepted.get(), address


def simulate(test: Callable[[Hosts], Awaitable[None]]) -> int:
    """The digest of the run."""
    loop = SimLoop()
    hosts = Hosts(loop)

    async def main() -> None:
        await test(hosts)

    try:
        loop.run(main(), limit_s=600, most_steps=1_000_000)
        assert not loop.failures
    finally:
        loop.discard()
    return loop.digest


P = ParamSpec("P")


def simulated(test: Callable[Concatenate[Hosts, P], Awaitable[None]]) -> Callable[P, None]:
    """Runs a test on hosts of its own."""

    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        simulate(lambda hosts: test(hosts, *args, **kwargs))

    # pytest gives the test the rest of its parameters.
    signature = inspect.signature(test)
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])  # type: ignore[attr-defined]
    return run


async def lasts(loop: SimLoop, work: Awaitable[object]) -> float:
    begin = loop.time()
    await work
    return loop.time() - begin


@simulated
async def test_bytes_travel_for_a_drawn_time_and_longer_where_it_is_slow(hosts: Hosts) -> None:
    one, other, _ = await hosts.connected()
    times = []
    for _ in range(50):
        one.send([b"x"])
        times.append(await lasts(hosts.loop, receive(other, 1)))
    assert all(0.0001 <= time <= 0.001 for time in times) and len(set(times)) == 50
    hosts.fabric.slow["a", "b"] = (2.0, 3.0)
    one.send([b"x"])
    assert 2 <= await lasts(hosts.loop, receive(other, 1)) <= 3
    other.send([b"x"])
    assert await lasts(hosts.loop, receive(one, 1)) <= 0.001, "the other direction is as before"


@simulated
async def test_what_was_sent_later_on_a_faster_way_does_not_overtake(hosts: Hosts) -> None:
    one, other, _ = await hosts.connected()
    hosts.fabric.slow["a", "b"] = (0.5, 0.5)
    one.send([b"first "])
    hosts.fabric.slow.clear()
    one.send([b"second"])
    begin = hosts.loop.time()
    assert await receive(other, 6) == b"first "
    assert hosts.loop.time() - begin == 0.5
    assert await receive(other, 6) == b"second"


@simulated
async def test_a_block_holds_bytes_back_one_way_until_it_ends(hosts: Hosts) -> None:
    one, other, _ = await hosts.connected()
    one.send([b"on the way "])
    hosts.fabric.block("a", "b")
    one.send([b"held "])
    other.send([b"back"])
    assert await receive(one, 4) == b"back"
    await asyncio.sleep(10)
    with pytest.raises(BlockingIOError):
        other.recv_into([memoryview(bytearray(1))])
    hosts.fabric.unblock("a", "b")
    one.send([b"free"])
    assert await receive(other, 20) == b"on the way held free"


@simulated
async def test_a_narrow_way_holds_back_what_is_large_and_all_behind_it(hosts: Hosts) -> None:
    near, far, _ = await hosts.connected()
    widen = hosts.fabric.narrow("a", "b")
    await send(near, b"small")
    assert await receive(far, 5) == b"small"
    await send(near, b"l" * 5000)
    await send(near, b"small")
    await asyncio.sleep(1.0)
    with pytest.raises(BlockingIOError):
        far.recv_into([memoryview(bytearray(1))])
    other, far_other, _ = await hosts.connected()
    await send(other, b"small")
    assert await receive(far_other, 5) == b"small", "the other connections go on"
    widen()
    assert await receive(far, 5005) == b"l" * 5000 + b"small"
    assert hosts.fabric.failed_since(0.0) == {("a", "b"), ("b", "a")}
    assert not hosts.fabric.failed_since(asyncio.get_running_loop().time() + 1.0)


@simulated
async def test_what_was_held_back_comes_slowly_at_first(hosts: Hosts) -> None:
    one, other, _ = await hosts.connected()
    hosts.fabric.delay_s = (0.1, 0.1)
    hosts.fabric.block("a", "b")
    for text in (b"1", b"2", b"3", b"4", b"5"):
        one.send([text])
    await asyncio.sleep(1)
    hosts.fabric.unblock("a", "b")
    begin = hosts.loop.time()
    came = []
    for _ in range(5):
        assert len(await receive(other, 1)) == 1
        came.append(round(hosts.loop.time() - begin, 6))
    first = 0.4 + 0.1  # the retransmission, 1.4 s after the first packet
    assert came == [first, first + 0.2, first + 0.2, first + 0.4, first + 0.4]
    one.send([b"6"])
    one.send([b"7"])
    begin = hosts.loop.time()
    await receive(other, 2)
    assert round(hosts.loop.time() - begin, 6) == 0.1


@simulated
async def test_a_writer_without_an_answer_for_long_gives_up_and_the_bytes_are_lost(hosts: Hosts) -> None:
    one, other, _ = await hosts.connected()
    hosts.fabric.block("a", "b")
    one.send([b"lost"])

    async def fails() -> None:
        with pytest.raises(ConnectionResetError):
            await receive(one, 1)

    assert await lasts(hosts.loop, fails()) == GIVE_UP_S
    with pytest.raises(BrokenPipeError):
        one.send([b"x"])
    one.close()
    hosts.fabric.unblock("a", "b")
    await asyncio.sleep(60)
    with pytest.raises(BlockingIOError):
        other.recv_into([memoryview(bytearray(9))])
    assert isinstance(await failure(other), BrokenPipeError | ConnectionResetError)


@simulated
async def test_each_block_is_borne_for_as_long(hosts: Hosts) -> None:
    one, other, _ = await hosts.connected()
    for _ in range(3):
        hosts.fabric.block("a", "b")
        one.send([b"x"])
        await asyncio.sleep(GIVE_UP_S - 3)
        hosts.fabric.unblock("a", "b")
        lasted_s = await lasts(hosts.loop, receive(other, 1))
        assert lasted_s == pytest.approx(0.6, abs=0.001), "until the retransmission after 12.6 s"


@simulated
async def test_a_retransmission_that_would_come_too_late_is_not_waited_for(hosts: Hosts) -> None:
    one, _, _ = await hosts.connected()
    hosts.fabric.block("a", "b")
    one.send([b"x"])
    await asyncio.sleep(GIVE_UP_S - 1)
    hosts.fabric.unblock("a", "b")
    with pytest.raises(ConnectionResetError):  # the next one is due after 25.4 s
        await receive(one, 1)


@simulated
async def test_the_kernel_of_a_paused_process_goes_on(hosts: Hosts) -> None:
    async def speak(stream: Stream) -> None:
        stream.send([b"x"])

    one, other, _ = await hosts.connected()
    await hosts.a.start(speak(one))
    hosts.a.pause()
    assert await receive(other, 1) == b"x"
    hosts.a.resume()
    hosts.fabric.block("a", "b")
    await hosts.a.start(speak(one))
    hosts.a.pause()
    await asyncio.sleep(GIVE_UP_S + 1)
    hosts.fabric.unblock("a", "b")
    hosts.a.resume()
    with pytest.raises(ConnectionResetError):
        await receive(one, 1)


@simulated
async def test_an_idle_connection_survives_a_block(hosts: Hosts) -> None:
    one, other, _ = await hosts.connected()
    hosts.fabric.block("a", "b")
    await asyncio.sleep(100)
    hosts.fabric.unblock("a", "b")
    one.send([b"x"])
    assert await receive(other, 1) == b"x"


@pytest.mark.parametrize("way", [("a", "b"), ("b", "a")])
@simulated
async def test_a_block_of_either_way_stops_connection_attempts(hosts: Hosts, way: tuple[str, str]) -> None:
    _, _, address = await hosts.connected()
    hosts.fabric.block(*way)

    async def fails() -> None:
        with pytest.raises(Unavailable, match=f"{address}: no answer in time"):
            await hosts.near.connect(address, 3)

    assert await lasts(hosts.loop, fails()) == pytest.approx(3)
    attempt = asyncio.ensure_future(hosts.near.connect(address, 3))
    await asyncio.sleep(1)
    hosts.fabric.unblock(*way)
    assert isinstance(await attempt, SimStream), "the attempt is repeated meanwhile"


@simulated
async def test_a_slow_way_can_be_too_slow_for_a_connection(hosts: Hosts) -> None:
    _, _, address = await hosts.connected()
    hosts.fabric.slow["b", "a"] = (3.0, 3.0)
    begin = hosts.loop.time()
    with pytest.raises(Unavailable, match="no answer in time"):
        await hosts.near.connect(address, 1)
    assert hosts.loop.time() - begin == 1


@simulated
async def test_the_end_of_a_process_is_noticed_after_the_block_that_hid_it(hosts: Hosts) -> None:
    one, other, _ = await hosts.connected()
    other.send([b"last words"])
    hosts.fabric.block("b", "a")
    hosts.b.kill()
    await asyncio.sleep(5)
    hosts.fabric.unblock("b", "a")
    # The retransmission after 6.2 s is a message, and a round trip later comes the end.
    assert await lasts(hosts.loop, receive(one, 100)) == pytest.approx(1.2, abs=0.005)


@simulated
async def test_a_cut_loses_what_is_on_its_way_and_both_ends_see_it(hosts: Hosts) -> None:
    one, other, address = await hosts.connected()
    one.send([b"lost"])
    hosts.fabric.cut("b", "a")
    for end in (one, other):
        with pytest.raises(ConnectionResetError):
            await receive(end, 1)
        with pytest.raises(BrokenPipeError):
            end.send([b"x"])
    again = await hosts.near.connect(address, 1)
    again.send([b"x"])


@simulated
async def test_a_cut_breaks_only_connections_of_these_two_hosts(hosts: Hosts) -> None:
    third = SimNet(hosts.fabric, Process(hosts.loop, "c.1", "c"))
    spared, other, _ = await pair(hosts.near, third, "c")
    _, _, _ = await hosts.connected()
    hosts.fabric.cut("a", "b")
    spared.send([b"x"])
    assert await receive(other, 1) == b"x"


@simulated
async def test_a_lossy_way_breaks_connections_with_the_message_that_it_loses(hosts: Hosts) -> None:
    hosts.fabric.lossy["a", "b"] = 0.3
    broken = 0
    for _ in range(100):
        one, other, _ = await hosts.connected()
        one.send([b"x"])
        try:
            assert await receive(other, 1) == b"x"
        except ConnectionResetError:
            broken += 1
        one.close()
        other.close()
    assert 15 <= broken <= 45


@simulated
async def test_a_killed_process_closes_its_sockets(hosts: Hosts) -> None:
    one, other, address = await hosts.connected()
    other.send([b"last words"])
    hosts.b.kill()
    assert await receive(one, 100) == b"last words"
    assert isinstance(await failure(one), OSError)
    with pytest.raises(Unavailable, match=f"{address}: connection refused"):
        await hosts.near.connect(address, 1)
    port = int(address.partition(":")[2])
    next_one = SimNet(hosts.fabric, Process(hosts.loop, "b.2", "b"))
    assert (await next_one.listen("b", port, lambda stream: None)).address == address


@simulated
async def test_a_paused_process_takes_connections_and_bytes_and_answers_later(hosts: Hosts) -> None:
    async def serve() -> str:
        def accept(stream: Stream) -> None:
            def answer() -> None:
                stream.on_readable(None)
                stream.send([b"answer"])

            stream.on_readable(answer)

        return (await hosts.far.listen("b", 0, accept)).address

    address = await hosts.b.start(serve())
    hosts.b.pause()
    one = await hosts.near.connect(address, 1)
    await send(one, b"question")
    await asyncio.sleep(60)
    with pytest.raises(BlockingIOError):
        one.recv_into([memoryview(bytearray(1))])
    hosts.b.resume()
    assert await lasts(hosts.loop, receive(one, 6)) <= 0.002


@simulated
async def test_a_host_without_power_says_nothing(hosts: Hosts) -> None:
    one, other, address = await hosts.connected()
    other.send([b"sent in the last moment"])
    hosts.b.kill()
    hosts.fabric.power_off("b")
    await asyncio.sleep(60)
    with pytest.raises(BlockingIOError):
        one.recv_into([memoryview(bytearray(9))])
    with pytest.raises(Unavailable, match="no answer in time"):
        await hosts.near.connect(address, 1)
    hosts.fabric.power_on("b")
    with pytest.raises(Unavailable, match="connection refused"):
        await hosts.near.connect(address, 1)
    assert isinstance(await failure(one), OSError), "the next attempt is answered with a reset"


@simulated
async def test_what_was_sent_into_a_power_cut_is_answered_with_a_reset_when_the_power_is_back(hosts: Hosts) -> None:
    one, _, _ = await hosts.connected()
    hosts.b.kill()
    hosts.fabric.power_off("b")
    one.send([b"is anybody there?"])
    await asyncio.sleep(3)
    hosts.fabric.power_on("b")
    begin = hosts.loop.time()
    with pytest.raises(ConnectionResetError):
        await receive(one, 1)
    assert hosts.loop.time() - begin == pytest.approx(3.2, abs=0.01), "with the retransmission after 6.2 s"


@simulated
async def test_a_sender_whose_window_was_full_before_a_power_cut_is_answered_with_a_reset_too(hosts: Hosts) -> None:
    one, _, _ = await hosts.connected()
    hosts.b.pause()
    with pytest.raises(BlockingIOError):
        while True:
            one.send([bytes(1 << 18)])
    await asyncio.sleep(1)  # all of it has arrived
    hosts.b.kill()
    hosts.fabric.power_off("b")
    await asyncio.sleep(3)
    hosts.fabric.power_on("b")
    with pytest.raises(ConnectionResetError):
        await receive(one, 1)


@simulated
async def test_a_sender_into_a_power_cut_gives_up_in_the_end(hosts: Hosts) -> None:
    one, _, _ = await hosts.connected()
    hosts.b.kill()
    hosts.fabric.power_off("b")
    one.send([b"is anybody there?"])
    begin = hosts.loop.time()
    with pytest.raises(ConnectionResetError):
        await receive(one, 1)
    assert hosts.loop.time() - begin == GIVE_UP_S


@simulated
async def test_nothing_is_kept_of_connections_that_have_ended(hosts: Hosts) -> None:
    before = len(hosts.a.on_kill), len(hosts.b.on_kill)
    for fault in ("close", "cut", "block"):
        one, other, _ = await hosts.connected()
        one.send([b"x"])
        if fault == "cut":
            hosts.fabric.cut("a", "b")
        elif fault == "block":
            hosts.fabric.block("a", "b")
            await asyncio.sleep(20)
        one.close()
        other.close()
        hosts.fabric.unblock("a", "b")
        await asyncio.sleep(1)
    assert not hosts.fabric.streams
    assert (len(hosts.a.on_kill), len(hosts.b.on_kill)) == (before[0], before[1] + 3), "three listeners"


def test_a_seed_is_the_same_run() -> None:
    async def transfer(hosts: Hosts) -> None:
        one, other, _ = await hosts.connected()
        await asyncio.gather(send(one, bytes(5 << 20)), receive(other, 5 << 20))

    assert simulate(transfer) == simulate(transfer)
