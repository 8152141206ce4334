"""The real framed protocol over the simulated network: every fault reaches callers as the error that they expect."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.clock import SimClock
from tests.harness.simulated.loop import Process, SimLoop
from tests.sim.net import Fabric, SimNet
from threefs.errors import ConnectionLost, DeadlineExceeded, Stopping, Unavailable
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.frames import SEGMENT_BYTES
from threefs.rpc.handshake import Identity
from threefs.rpc.methods import READ, SPACE_INFO, WRITE
from threefs.rpc.server import Server
from threefs.rpc.server_connection import Call
from threefs.wire import storage_pb2 as pb

ADDRESS = "b:7000"


class Service:
    """One server process: keeps what is written, and answers SpaceInfo only when it may."""

    def __init__(self, process: Process, net: SimNet) -> None:
        self.server = Server(net, Identity("c" * 32, "b" * 32), clock=SimClock(process.loop, rate=1.01))
        self.kept = b""
        self.writes = 0
        self.entered = 0
        self.cancelled = 0
        self.may_answer = asyncio.Event()
        self.server.add(WRITE, self._write)
        self.server.add(READ, lambda call: call.reply(pb.ReadReply(), [self.kept]))
        self.server.serve(SPACE_INFO, self._wait)

    def _write(self, call: Call[pb.WriteRequest, pb.WriteReply]) -> None:
        self.kept = bytes(call.payload)
        self.writes += 1
        call.reply(pb.WriteReply(routing_version=self.writes))

    async def _wait(self, request: pb.SpaceInfoRequest) -> pb.SpaceInfoReply:
        self.entered += 1
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return pb.SpaceInfoReply()


class Hosts:
    def __init__(self) -> None:
        self.loop = SimLoop()
        self.fabric = Fabric(self.loop, SeededRandom("rpc"))
        self.caller = Process(self.loop, "a.1", "a")
        self.peers = ConnectionPool(
            SimNet(self.fabric, self.caller), Identity("", "a" * 32), clock=SimClock(self.loop, rate=0.99, offset_s=50)
        )

    async def serve(self) -> tuple[Service, Process]:
        process = Process(self.loop, "b", "b")
        service = Service(process, SimNet(self.fabric, process))
        assert await process.start(service.server.start("b", 7000)) == ADDRESS
        return service, process

    def begin(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """As the calling process."""
        return self.caller.start(work)

    async def write(self, data: bytes, timeout_s: float = 5.0) -> int:
        reply = await self.begin(
            self.peers.call(ADDRESS, WRITE, pb.WriteRequest(), timeout_s=timeout_s, payload=[data])
        )
        assert isinstance(reply, pb.WriteReply)
        return reply.routing_version

    async def read(self, length: int) -> bytes:
        place = memoryview(bytearray(length))
        await self.begin(
            self.peers.call(ADDRESS, READ, pb.ReadRequest(), timeout_s=5, sink=lambda _, size: [place[:size]])
        )
        return bytes(place)

    def wait(self, timeout_s: float = 5.0) -> "asyncio.Task[Any]":
        """A call that the service is long about."""
        return self.begin(self.peers.call(ADDRESS, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=timeout_s))


def simulate(test: Callable[[Hosts], Awaitable[None]]) -> None:
    hosts = Hosts()

    async def main() -> None:
        await test(hosts)

    try:
        hosts.loop.run(main(), limit_s=300, most_steps=1_000_000)
        assert not hosts.loop.failures
    finally:
        hosts.loop.discard()


def simulated(test: Callable[[Hosts], Awaitable[None]]) -> Callable[[], None]:
    """Runs a test on hosts of its own."""

    def run() -> None:
        simulate(test)

    return run


@simulated
async def test_payload_goes_both_ways_unharmed(hosts: Hosts) -> None:
    service, _ = await hosts.serve()
    for size in (0, 1, 4096, SEGMENT_BYTES - 1, SEGMENT_BYTES + 1, 5_000_001):
        data = SeededRandom(size).token(size)
        await hosts.write(data)
        assert service.kept == data
        assert await hosts.read(size) == data
    assert service.server.pool.lent == 0


@simulated
async def test_small_calls_pass_large_ones_on_the_same_connection(hosts: Hosts) -> None:
    service, _ = await hosts.serve()
    service.may_answer.set()
    await hosts.write(b"")
    hosts.fabric.slow["a", "b"] = (0.01, 0.02)
    ends: list[str] = []
    large = hosts.begin(hosts.write(bytes(20 << 20), 30))
    large.add_done_callback(lambda _: ends.append("large"))
    await asyncio.sleep(0)
    small = hosts.wait()
    small.add_done_callback(lambda _: ends.append("small"))
    await asyncio.gather(large, small)
    assert ends == ["small", "large"]


@simulated
async def test_a_call_ends_at_its_deadline_and_is_cancelled_over_there(hosts: Hosts) -> None:
    service, _ = await hosts.serve()
    begin = hosts.loop.time()
    with pytest.raises(DeadlineExceeded):
        await hosts.wait(timeout_s=2.97)
    assert hosts.loop.time() - begin == pytest.approx(3.0, abs=0.01), "2.97 s of a clock that is slow by 1 %"
    await asyncio.sleep(0.01)
    assert service.cancelled == 1
    assert await hosts.write(b"the connection is as good as before") == 1


@simulated
async def test_a_call_that_its_caller_gives_up_is_cancelled_over_there(hosts: Hosts) -> None:
    service, _ = await hosts.serve()
    call = hosts.wait()
    await asyncio.sleep(1)
    assert (service.entered, service.cancelled) == (1, 0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.sleep(0.01)
    assert service.cancelled == 1


@simulated
async def test_a_server_killed_in_a_call_is_a_lost_connection_and_its_successor_serves(hosts: Hosts) -> None:
    service, process = await hosts.serve()
    call = hosts.wait()
    await asyncio.sleep(1)
    process.kill()
    begin = hosts.loop.time()
    with pytest.raises(ConnectionLost):
        await call
    assert hosts.loop.time() - begin < 0.01
    with pytest.raises(Unavailable, match=ADDRESS):
        await hosts.write(b"x")
    assert service.cancelled == 0, "who is dead handles no loss"
    await hosts.serve()
    assert await hosts.write(b"x") == 1


@simulated
async def test_a_caller_killed_in_a_call_cancels_it(hosts: Hosts) -> None:
    service, _ = await hosts.serve()
    call = hosts.wait()
    await asyncio.sleep(1)
    hosts.caller.kill()
    await asyncio.sleep(1)
    assert service.cancelled == 1 and not call.done()


@simulated
async def test_a_server_without_power_is_a_deadline_then_a_lost_connection(hosts: Hosts) -> None:
    _, process = await hosts.serve()
    call = hosts.wait(timeout_s=3)
    await asyncio.sleep(1)
    process.kill()
    hosts.fabric.power_off("b")
    with pytest.raises(DeadlineExceeded):
        await call
    hosts.fabric.power_on("b")
    await hosts.serve()
    with pytest.raises(ConnectionLost):  # the cancellation of the first call was answered with a reset
        while True:
            await hosts.write(b"x")
    assert await hosts.write(b"x") == 1


@simulated
async def test_a_paused_server_answers_when_it_goes_on(hosts: Hosts) -> None:
    service, process = await hosts.serve()
    assert await hosts.write(b"before") == 1
    process.pause()
    with pytest.raises(DeadlineExceeded):
        await hosts.write(b"in the pause", timeout_s=1)
    second = hosts.begin(hosts.write(b"after", timeout_s=30))
    await asyncio.sleep(5)
    process.resume()
    await second
    assert service.kept == b"after"


@simulated
async def test_a_lost_reply_leaves_the_effect(hosts: Hosts) -> None:
    service, _ = await hosts.serve()
    assert await hosts.write(b"one") == 1
    hosts.fabric.block("b", "a")
    with pytest.raises(DeadlineExceeded):
        await hosts.write(b"two", timeout_s=1)
    assert (service.kept, service.writes) == (b"two", 2)
    hosts.fabric.cut("a", "b")
    hosts.fabric.unblock("b", "a")
    assert await hosts.write(b"two") == 3, "a caller repeats it on a new connection"


@simulated
async def test_a_lost_request_has_no_effect(hosts: Hosts) -> None:
    service, _ = await hosts.serve()
    assert await hosts.write(b"one") == 1
    hosts.fabric.block("a", "b")
    call = hosts.begin(hosts.write(b"two"))
    await asyncio.sleep(1)
    hosts.fabric.cut("a", "b")
    with pytest.raises(ConnectionLost):
        await call
    hosts.fabric.unblock("a", "b")
    await asyncio.sleep(60)
    assert (service.kept, service.writes) == (b"one", 1)
    assert await hosts.write(b"three") == 2


@simulated
async def test_a_cut_in_the_middle_of_a_payload_gives_its_buffer_back(hosts: Hosts) -> None:
    service, _ = await hosts.serve()
    await hosts.write(b"")
    hosts.fabric.slow["a", "b"] = (0.05, 0.1)
    call = hosts.begin(hosts.write(bytes(8 << 20)))
    while not service.server.pool.lent:
        await asyncio.sleep(0.01)
    hosts.fabric.cut("a", "b")
    with pytest.raises(ConnectionLost):
        await call
    await asyncio.sleep(1)
    assert service.server.pool.lent == 0 and service.kept == b""


@simulated
async def test_a_server_that_stops_answers_the_calls_that_it_has_started(hosts: Hosts) -> None:
    service, process = await hosts.serve()
    call = hosts.wait()
    await asyncio.sleep(1)
    stop = process.start(service.server.stop(10))
    await asyncio.sleep(1)
    with pytest.raises((Stopping, Unavailable)):
        await hosts.write(b"x")
    service.may_answer.set()
    await call
    await stop
    with pytest.raises(Unavailable):
        await hosts.write(b"x")
