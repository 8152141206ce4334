"""Calls from the caller's side: payload both ways, deadlines, cancellation, loss."""

import asyncio
import contextlib
import itertools
import os
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.rpc import LOOPS, NETS, Served, on_a_loop
from threefs.errors import (
    ConnectionLost,
    DeadlineExceeded,
    LimitExceeded,
    NoSpace,
    Overloaded,
    ProtocolError,
    Stopping,
    UnknownMethod,
)
from threefs.rpc import send_stall
from threefs.rpc.frames import HEADER_BYTES, PROBE_BYTES, SEGMENT_BYTES
from threefs.rpc.limits import Limits
from threefs.rpc.methods import READ, SPACE_INFO, WRITE
from threefs.rpc.server import Server
from threefs.rpc.server_connection import Call
from threefs.wire import storage_pb2 as pb

ReadCall = Call[pb.ReadRequest, pb.ReadReply]
WriteCall = Call[pb.WriteRequest, pb.WriteReply]


def pieces(data: bytes, cuts: Sequence[int]) -> list[memoryview]:
    """`data` cut into writable views."""
    buffer = memoryview(bytearray(data))
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [buffer[a:b] for a, b in itertools.pairwise(places)]


def add_echo(server: Server) -> None:
    """A write keeps its payload; a read gives it back."""
    kept: list[bytes] = [b""]

    def write(call: WriteCall) -> None:
        kept[0] = bytes(call.payload)
        call.reply(pb.WriteReply(routing_version=len(call.payload)))

    def read(call: ReadCall) -> None:
        cuts = list(call.request.length)
        call.reply(pb.ReadReply(), pieces(kept[0], cuts))

    server.add(WRITE, write)
    server.add(READ, read)


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("loop", LOOPS)
async def test_payload_of_any_size_goes_both_ways_unharmed(net: str, loop: str) -> None:
    async with Served(net=NETS[net]) as (server, peers, address):
        add_echo(server)
        for size in (0, 1, 31, 4096, 16 << 10, SEGMENT_BYTES - 1, SEGMENT_BYTES, SEGMENT_BYTES + 1, 5_000_001):
            data = os.urandom(size)
            reply = await peers.call(
                address, WRITE, pb.WriteRequest(), timeout_s=20, payload=pieces(data, [size // 3, size // 2])
            )
            assert reply.routing_version == size
            places = pieces(bytes(size), [size // 5, 17])
            await peers.call(
                address,
                READ,
                pb.ReadRequest(length=[size // 7, size - 1 if size else 0]),
                timeout_s=20,
                sink=lambda _, length, places=places: places,  # type: ignore[misc]
            )
            assert b"".join(places) == data
        assert server.pool.lent == 0, "every payload buffer came back"


@settings(max_examples=30, deadline=None)
@given(
    st.binary(max_size=2000),
    st.integers(1, 700),
    st.lists(st.integers(0, 2**21), max_size=40),
    st.lists(st.integers(0, 2**21), max_size=40),
)
@on_a_loop
async def test_scattered_and_gathered_payload(seed: bytes, repeat: int, sent: list[int], taken: list[int]) -> None:
    data = seed * repeat
    async with Served() as (server, peers, address):
        add_echo(server)
        await peers.call(address, WRITE, pb.WriteRequest(), timeout_s=20, payload=pieces(data, sent))
        places = pieces(bytes(len(data)), taken)
        await peers.call(address, READ, pb.ReadRequest(length=sent), timeout_s=20, sink=lambda _, n: places)
        assert b"".join(places) == data


async def test_more_views_than_the_kernel_takes_at_once() -> None:
    async with Served() as (server, peers, address):
        add_echo(server)
        data = os.urandom(5000)
        await peers.call(
            address, WRITE, pb.WriteRequest(), timeout_s=20, payload=[data[i : i + 1] for i in range(5000)]
        )
        places = [memoryview(bytearray(1)) for _ in range(5000)]
        await peers.call(address, READ, pb.ReadRequest(), timeout_s=20, sink=lambda _, n: places)
        assert b"".join(places) == data


async def test_a_small_answer_passes_between_the_segments_of_a_large_one() -> None:
    async with Served() as (server, peers, address):
        size = 64 << 20

        def read(call: ReadCall) -> None:
            call.reply(pb.ReadReply(), [bytes(size)])

        async def space(request: pb.SpaceInfoRequest) -> pb.SpaceInfoReply:
            return pb.SpaceInfoReply()

        server.add(READ, read)
        server.serve(SPACE_INFO, space)
        connection = await peers.connect(address, 5)
        place = memoryview(bytearray(size))
        started = asyncio.Event()

        def sink(_: object, length: int) -> Sequence[memoryview]:
            started.set()
            return [place]

        large = connection.call(READ, pb.ReadRequest(), timeout_s=30, sink=sink)
        await started.wait()
        small = connection.call(SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=30)
        await small
        assert not large.done()
        await large


async def test_a_call_without_an_answer_ends_with_its_deadline_and_is_cancelled_at_the_service() -> None:
    async with Served() as (server, peers, address):
        begun, cancelled = asyncio.Event(), asyncio.Event()

        async def read(call: ReadCall) -> None:
            begun.set()
            try:
                await asyncio.sleep(30)
            finally:
                cancelled.set()

        server.add(READ, read)
        await peers.connect(address, 30)
        while not begun.is_set():  # the time may be over before the call has got there
            with pytest.raises(DeadlineExceeded, match=r"Storage\.Read"):
                await peers.call(address, READ, pb.ReadRequest(), timeout_s=0.05)
        await cancelled.wait()


async def test_an_answer_that_has_come_counts_although_this_process_was_too_busy_to_read_it_in_time() -> None:
    """A process whose loop had been held up took its own heartbeats for failed, whose answers it had."""
    async with Served() as (server, peers, address):
        begun: list[WriteCall] = []
        add_slow_echo(server, begun)
        connection = await peers.connect(address, 5)
        calls = [connection.call(WRITE, pb.WriteRequest(), timeout_s=60) for _ in range(2)]
        while len(begun) < 2:
            await asyncio.sleep(0.001)
        connection._stream._stream.on_readable(None)  # the loop does not get to it
        begun[0].reply(pb.WriteReply(routing_version=7))
        await asyncio.sleep(0.01)
        for pending in connection._pending.values():
            pending.deadline = connection._clock.monotonic()
        connection._expire()
        answered, late = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(answered, pb.WriteReply) and answered.routing_version == 7
        assert isinstance(late, DeadlineExceeded), "no answer to this one has come"


async def test_a_caller_can_have_read_what_has_come() -> None:
    async with Served() as (server, peers, address):
        begun: list[WriteCall] = []
        add_slow_echo(server, begun)
        connection = await peers.connect(address, 5)
        call = connection.call(WRITE, pb.WriteRequest(), timeout_s=60)
        while not begun:
            await asyncio.sleep(0.001)
        connection._stream._stream.on_readable(None)  # the loop does not get to it
        begun[0].reply(pb.WriteReply())
        while not call.done():
            await asyncio.sleep(0.001)
            connection.receive()


async def test_a_cancelled_call_does_not_touch_its_place_any_more() -> None:
    async with Served() as (server, peers, address):
        size = 32 << 20

        def read(call: ReadCall) -> None:
            call.reply(pb.ReadReply(), [b"\xff" * size])

        server.add(READ, read)
        connection = await peers.connect(address, 5)
        place = memoryview(bytearray(size))
        started = asyncio.Event()

        def sink(_: object, length: int) -> Sequence[memoryview]:
            started.set()
            return [place]

        call = connection.call(READ, pb.ReadRequest(), timeout_s=30, sink=sink)
        await started.wait()
        call.cancel()
        await asyncio.sleep(0)
        received = bytes(place)
        other = memoryview(bytearray(size))
        await connection.call(READ, pb.ReadRequest(), timeout_s=30, sink=lambda _, n: [other])
        assert bytes(place) == received and received.count(b"\xff") < size
        assert bytes(other) == b"\xff" * size, "the connection goes on"


async def test_errors_keep_their_class() -> None:
    async with Served() as (server, peers, address):

        def read(call: ReadCall) -> None:
            raise NoSpace("target 101 is full")

        server.add(READ, read)
        with pytest.raises(NoSpace, match="target 101 is full"):
            await peers.call(address, READ, pb.ReadRequest(), timeout_s=5)
        with pytest.raises(UnknownMethod):
            await peers.call(address, WRITE, pb.WriteRequest(), timeout_s=5, payload=[bytes(3 * SEGMENT_BYTES)])
        with pytest.raises(NoSpace):
            await peers.call(address, READ, pb.ReadRequest(), timeout_s=5)


async def test_what_the_service_said_it_takes_is_checked_before_anything_is_sent() -> None:
    async with Served(limits=Limits(payload_bytes=10, body_bytes=100)) as (server, peers, address):
        add_echo(server)
        connection = await peers.connect(address, 5)
        for payload, offsets in ((b"x" * 11, []), (b"", [2**30] * 40)):
            with pytest.raises(LimitExceeded, match="100 and 10 bytes"):
                request = pb.WriteRequest(writes=[pb.ChunkWrite(offset=offset) for offset in offsets])
                await connection.call(WRITE, request, timeout_s=5, payload=[payload])
        await connection.call(WRITE, pb.WriteRequest(), timeout_s=5, payload=[b"x" * 10])


def add_slow_echo(server: Server, begun: list[WriteCall]) -> None:
    """Writes are kept until the test answers them."""
    server.add(WRITE, begun.append)


@pytest.mark.parametrize("limits", [Limits(calls=3), Limits(inflight_bytes=3_000_000)])
async def test_calls_for_which_the_service_has_no_room_wait_for_their_turn(limits: Limits) -> None:
    async with Served(limits=limits) as (server, peers, address):
        begun: list[WriteCall] = []
        add_slow_echo(server, begun)
        connection = await peers.connect(address, 5)
        data = [bytes([n]) * 1_000_000 for n in range(10)]
        calls = [connection.call(WRITE, pb.WriteRequest(), timeout_s=20, payload=[one]) for one in data]
        seen = []
        for place in range(10):
            while len(begun) < min(3, 10 - place):
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.02)
            assert len(begun) == min(3, 10 - place)
            call = begun.pop(0)
            seen.append(bytes(call.payload[:1]))
            call.reply(pb.WriteReply())
        assert seen == [one[:1] for one in data], "in the order in which they were made"
        await asyncio.gather(*calls)
        assert not connection._stream.closed and connection._window.calls == 0


async def test_a_call_that_waits_for_its_turn_may_be_cancelled_and_its_time_may_end() -> None:
    async with Served(limits=Limits(calls=1)) as (server, peers, address):
        begun: list[WriteCall] = []
        add_slow_echo(server, begun)
        connection = await peers.connect(address, 5)
        first, cut, late, last = (
            connection.call(WRITE, pb.WriteRequest(), timeout_s=timeout_s) for timeout_s in (20, 20, 0.05, 20)
        )
        cut.cancel()
        with pytest.raises(Overloaded, match="no room"):
            await late
        while not begun:
            await asyncio.sleep(0.001)
        begun.pop().reply(pb.WriteReply())
        await first
        while not begun:
            await asyncio.sleep(0.001)
        begun.pop().reply(pb.WriteReply())
        await last
        assert connection.outstanding == 0 == connection._window.calls


async def test_calls_whose_time_ends_together_give_way_to_none_of_them() -> None:
    """The first one made room for the next, which was sent after its caller had read that it had no effect."""
    async with Served() as (server, peers, address):
        begun: list[pb.SpaceInfoRequest] = []

        async def never(request: pb.SpaceInfoRequest) -> pb.SpaceInfoReply:
            begun.append(request)
            await asyncio.sleep(30)
            raise AssertionError("it was to be cancelled")

        server.serve(SPACE_INFO, never, quick=True)
        connection = await peers.connect(address, 5)
        connection._window.max_calls = 1
        calls = [connection.call(SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=5) for _ in range(4)]
        for pending in connection._pending.values():
            pending.deadline = connection._clock.monotonic()
        await asyncio.sleep(0.05)
        connection._expire()
        first, *others = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(first, DeadlineExceeded) and all(isinstance(error, Overloaded) for error in others)
        await connection.ping(5)
        assert len(begun) == 1
        assert connection._window.calls == connection._window.waiting == connection.outstanding == 0


async def test_payload_without_a_place_for_it_breaks_the_connection_in_words() -> None:
    async with Served() as (server, peers, address):
        add_echo(server)
        await peers.call(address, WRITE, pb.WriteRequest(), timeout_s=5, payload=[b"abc"])
        for sink in (None, lambda _, n: [memoryview(bytearray(2))]):
            with pytest.raises((ProtocolError, ConnectionLost)):
                await peers.call(address, READ, pb.ReadRequest(), timeout_s=5, sink=sink)


async def test_a_lost_connection_fails_what_is_in_flight_and_is_made_again() -> None:
    async with Served() as (server, peers, address):

        async def read(call: ReadCall) -> None:
            for session in list(server._connections):
                session.stream.close(ConnectionLost("cut"))

        server.add(READ, read)

        async def space(request: pb.SpaceInfoRequest) -> pb.SpaceInfoReply:
            return pb.SpaceInfoReply()

        server.serve(SPACE_INFO, space)
        with pytest.raises(ConnectionLost):
            await peers.call(address, READ, pb.ReadRequest(), timeout_s=5)
        await peers.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=5)


async def test_a_stopping_server_answers_started_calls_and_takes_no_new_ones() -> None:
    async with Served() as (server, peers, address):
        begun = asyncio.Event()
        go_on = asyncio.Event()

        async def read(call: ReadCall) -> None:
            begun.set()
            await go_on.wait()
            call.reply(pb.ReadReply(routing_version=7))

        server.add(READ, read)
        connection = await peers.connect(address, 5)
        running = connection.call(READ, pb.ReadRequest(), timeout_s=10)
        await begun.wait()
        stopping = asyncio.create_task(server.stop(5))
        while not connection.closing:
            await asyncio.sleep(0.01)
        with pytest.raises(Stopping):
            await connection.call(READ, pb.ReadRequest(), timeout_s=10)
        go_on.set()
        assert (await running).routing_version == 7
        await stopping


async def test_a_server_answers_a_ping_beside_calls_that_wait() -> None:
    async with Served() as (server, peers, address):
        enough = asyncio.Event()

        async def space(request: pb.SpaceInfoRequest) -> pb.SpaceInfoReply:
            await enough.wait()
            return pb.SpaceInfoReply()

        server.serve(SPACE_INFO, space)
        connection = await peers.connect(address, 5)
        waiting = connection.call(SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=30)
        await asyncio.gather(*(connection.ping(30) for _ in range(3)))
        assert not waiting.done()
        enough.set()
        await waiting
        connection.close()
        with pytest.raises(ConnectionLost):
            await connection.ping(30)


async def test_what_a_ping_carries_comes_back_within_a_bound() -> None:
    """A network may pass small packets and lose large ones, in one of the two directions."""
    async with Served() as (_, peers, address):
        connection = await peers.connect(address, 5)
        for sent, echoed in ((0, 0), (100, 100), (PROBE_BYTES, PROBE_BYTES), (1 << 20, PROBE_BYTES)):
            before = connection._stream.received_bytes
            await connection.ping(5, bytes(sent))
            assert connection._stream.received_bytes - before == HEADER_BYTES + echoed


@pytest.mark.parametrize("net", NETS)
async def test_a_connection_to_a_process_that_hangs_ends(net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was to be sent to it kept its memory for as long as it hung, of every call that was given up meanwhile."""
    monkeypatch.setattr(send_stall, "STALL_S", 0.3)
    async with Served(net=NETS[net]) as (server, peers, address):
        add_echo(server)
        connection = await peers.connect(address, 5)
        await connection.call(WRITE, pb.WriteRequest(), timeout_s=5, payload=[b"x"])
        (session,) = server._connections
        session.stream._stream.on_readable(None)
        until = asyncio.get_running_loop().time() + 10
        while not connection.closing and asyncio.get_running_loop().time() < until:
            with contextlib.suppress(DeadlineExceeded, ConnectionLost):
                await connection.call(WRITE, pb.WriteRequest(), timeout_s=0.02, payload=[bytes(1 << 20)])
        assert connection.closing
        assert not connection._stream.sending, "its memory is free"
        session.stream._stream.on_readable(session.stream._readable)  # it may hear of the end
