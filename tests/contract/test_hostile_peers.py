"""Peers that speak the protocol wrongly: every call has an end in words, nothing is kept, and others are served."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import pytest

from tests.harness.rpc import RawPeer, Served, TcpNet, announcing, hello_frame, identity
from threefs.errors import ConnectionLost, ProtocolError, ThreefsError
from threefs.rpc import frames, handshake
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.frames import HEADER_BYTES, SEGMENT_BYTES
from threefs.rpc.limits import Limits
from threefs.rpc.methods import GET_ROUTING, READ, SPACE_INFO, WRITE
from threefs.rpc.server_connection import Call
from threefs.wire import storage_pb2 as pb
from threefs.wire.common_pb2 import Hello

MIB = 1 << 20
SIZE = 300_000

WriteCall = Call[pb.WriteRequest, pb.WriteReply]
#: Told the id of the call that has come; what is sent then.
Says = Callable[[int], Iterable[bytes]]


@asynccontextmanager
async def lying_server(says: Says, hello: Hello | None = None) -> AsyncIterator[str]:
    """Says HELLO, takes one call, and says what it is told to; then nothing more."""
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def frame() -> frames.Header:
            header = frames.decode(await reader.readexactly(HEADER_BYTES), 0, Limits())
            await reader.readexactly(header.body_bytes + header.inline_bytes)
            return header

        try:
            await frame()
            mine = hello or handshake.hello(identity("c" * 32))
            writer.write(handshake.frame(mine.SerializeToString()))
            header = await frame()
            for piece in says(header.call_id):
                writer.write(piece)
            await over.wait()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        over.set()
        server.close()


def answer(call_id: int, payload_bytes: int = 0, flags: int = 0, body: bytes = b"") -> bytes:
    return frames.encode(frames.RESPONSE, READ.number, flags, call_id, body, payload_bytes)


def segment(call_id: int, size: int) -> bytes:
    return frames.encode(frames.SEGMENT, call_id=call_id, payload_bytes=size) + bytes(size)


FALSE_ANSWERS: dict[str, Says] = {
    "twice": lambda n: [answer(n, SIZE) + bytes(SEGMENT_BYTES), answer(n, SIZE) + bytes(SEGMENT_BYTES)],
    "twice, then an error": lambda n: [answer(n, SIZE) + bytes(SEGMENT_BYTES), answer(n, flags=frames.FAILED)],
    "more than announced": lambda n: [answer(n, SIZE) + bytes(SEGMENT_BYTES), segment(n, SEGMENT_BYTES)],
    "more than asked for": lambda n: [answer(n, SIZE + 1) + bytes(SEGMENT_BYTES)],
    "over the limit": lambda n: [answer(n, 1 << 31)],
    "a body over the limit": lambda n: [announcing(answer(n), 1 << 30)],
    "not a message": lambda n: [answer(n, body=b"\xff\xff\xff")],
    "not an error": lambda n: [answer(n, flags=frames.FAILED, body=b"\xff\xff\xff")],
    "a call of its own": lambda n: [frames.encode(frames.REQUEST, READ.number, 0, n)],
    "hello again": lambda n: [hello_frame(identity())],
    "a ready that needs no grant": lambda n: [frames.encode(frames.READY, call_id=n)],
    "a grant": lambda n: [frames.encode(frames.GRANT, call_id=n)],
    "good bye": lambda n: [frames.encode(frames.GOAWAY, body=b"\xff")],
    "noise": lambda n: [b"noise" * 1000],
    "damage": lambda n: [answer(n)[:-1] + b"\x01"],
    "others' answers, and the end": lambda n: [answer(n + 1, 10) + bytes(10), segment(n + 7, 5), b"?" * HEADER_BYTES],
}


@pytest.mark.parametrize("what", FALSE_ANSWERS)
async def test_a_false_answer_ends_the_call_in_words(what: str) -> None:
    async with lying_server(FALSE_ANSWERS[what]) as address:
        peers = ConnectionPool(TcpNet(), identity())
        place = memoryview(bytearray(SIZE))

        def sink(_: pb.ReadReply, size: int) -> list[memoryview]:
            if size > SIZE:
                raise ProtocolError("more than was asked for")
            return [place[:size]]

        with pytest.raises(ThreefsError):
            await peers.call(address, READ, pb.ReadRequest(), timeout_s=12, sink=sink)
        connection = peers.live(address)
        assert connection is None or (connection.outstanding == 0 and connection._window.calls == 0)
        await peers.close()


@pytest.mark.parametrize("loop", ["asyncio"])
async def test_a_sink_that_fails_ends_the_connection_and_not_only_a_turn_of_the_loop(loop: str) -> None:
    """The call waited for its whole time, and so did all others of the connection."""
    caught: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: caught.append(context["exception"]))
    async with lying_server(lambda n: [answer(n, SIZE) + bytes(SEGMENT_BYTES)]) as address:
        peers = ConnectionPool(TcpNet(), identity())

        def sink(_: pb.ReadReply, size: int) -> list[memoryview]:
            raise ZeroDivisionError

        connection = await peers.connect(address, 5)
        mine = connection.call(READ, pb.ReadRequest(), timeout_s=12, sink=sink)
        other = connection.call(SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=12)
        with pytest.raises(ConnectionLost, match="could not be processed"):
            await mine
        with pytest.raises(ConnectionLost):
            await other
        await peers.close()
    assert [type(error) for error in caught] == [ZeroDivisionError]


HELLOS = {
    "nothing is told": Hello(protocol=frames.PROTOCOL, cluster_id="c" * 32),
    "one of each": Hello(
        protocol=frames.PROTOCOL,
        cluster_id="c" * 32,
        max_calls=1,
        max_inflight_bytes=1,
        max_payload_bytes=MIB,
        max_body_bytes=1000,
    ),
    "all there is": Hello(
        protocol=frames.PROTOCOL,
        cluster_id="c" * 32,
        max_calls=2**32 - 1,
        max_inflight_bytes=2**64 - 1,
        max_payload_bytes=2**32 - 1,
        max_body_bytes=2**32 - 1,
    ),
}


@pytest.mark.parametrize("what", HELLOS)
async def test_calls_go_to_a_service_whatever_it_says_it_takes(what: str) -> None:
    def says(n: int) -> Iterable[bytes]:
        for call_id in range(n, n + 4):
            yield frames.encode(frames.RESPONSE, WRITE.number, 0, call_id)

    async with lying_server(says, HELLOS[what]) as address:
        peers = ConnectionPool(TcpNet(), identity())
        connection = await peers.connect(address, 5)
        calls = [
            connection.call(WRITE, pb.WriteRequest(), timeout_s=20, payload=[bytes(1000)], hops=behind)
            for behind in (None, 0, 1, 7)
        ]
        await asyncio.wait_for(calls[0], 20)
        connection.close()
        await asyncio.gather(*calls, return_exceptions=True)
        assert connection._window.calls >= 0 and not connection._pending
        await peers.close()


def request(
    call_id: int, method: int = WRITE.number, body: bytes = b"", payload_bytes: int = 0, ms: int = 500
) -> bytes:
    return frames.encode(frames.REQUEST, method, 0, call_id, body, payload_bytes, ms)


MISCHIEF: dict[str, list[bytes]] = {
    "hello again": [hello_frame(identity())],
    "a call twice": [request(1, payload_bytes=SIZE) + bytes(100_000), request(1)],
    "an answer": [frames.encode(frames.RESPONSE, WRITE.number, 0, 1)],
    "a pong": [frames.encode(frames.PONG)],
    "segments of no call": [segment(5, 1000), segment(6, SEGMENT_BYTES)],
    "more than announced": [request(1, payload_bytes=SIZE) + bytes(SEGMENT_BYTES), segment(1, SEGMENT_BYTES)],
    "half of a payload": [request(1, payload_bytes=SIZE) + bytes(1000)],
    "half of a small payload": [request(1, payload_bytes=1000) + bytes(500)],
    "half of the last segment": [
        request(1, payload_bytes=SIZE) + bytes(SEGMENT_BYTES),
        segment(1, SIZE - SEGMENT_BYTES)[:-9],
    ],
    "a payload over the limit": [request(1, payload_bytes=200 * MIB)],
    "a body over the limit": [announcing(request(1), 2**32 - 1)],
    "methods of others": [request(n, method) for n, method in enumerate((GET_ROUTING.number, 0, 65535), 1)],
    "not a message": [request(1, body=b"\xff\xff\xff\xff")],
    "no time": [request(1, ms=0), request(2, payload_bytes=10, ms=0) + bytes(10)],
    "cancels of nothing": [frames.encode(frames.CANCEL, call_id=n) for n in range(1000)],
    "grants of nothing": [frames.encode(frames.GRANT, call_id=n) for n in range(1000)],
    "a grant before its answer": [request(1) + frames.encode(frames.GRANT, call_id=1)],
    "a ready": [frames.encode(frames.READY, call_id=1)],
    "called and cancelled": [request(n) + frames.encode(frames.CANCEL, call_id=n) for n in range(1, 300)],
    "half sent and cancelled": [
        request(n, payload_bytes=SIZE) + bytes(SEGMENT_BYTES) + frames.encode(frames.CANCEL, call_id=n)
        for n in range(1, 20)
    ],
    "pings": [frames.encode(frames.PING)] * 10_000,
    "good bye": [frames.encode(frames.GOAWAY, body=b"\xff\xff")],
    "noise": [bytes(range(256)) * 100],
    "damage": [request(1, body=bytes(8))[:-1] + b"\x01"],
}


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("what", MISCHIEF)
@pytest.mark.parametrize("loop", ["asyncio"])
async def test_mischief_of_one_leaves_nothing_and_others_are_served(loop: str, what: str, reads: bool) -> None:
    async with Served(limits=Limits(payload_s=0.5, stall_s=2.0)) as (server, peers, address):
        caught: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: caught.append(context))

        async def write(call: object) -> None:
            await asyncio.sleep(0.01)
            call.reply(pb.WriteReply())  # type: ignore[attr-defined]

        async def space(request: pb.SpaceInfoRequest) -> pb.SpaceInfoReply:
            return pb.SpaceInfoReply()

        server.add(WRITE, write)
        server.serve(SPACE_INFO, space)
        async with RawPeer(address) as raw:
            await raw.greet()
            if not reads:
                raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for piece in MISCHIEF[what]:
                raw.writer.write(piece)
            await asyncio.sleep(0.05)
            await peers.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=20)
            assert server.pool.lent_bytes <= MIB
        while len(server._connections) > 1:
            await asyncio.sleep(0.01)
        (session,) = server._connections
        assert not session.calls and server.pool.lent == 0
        assert server.calls_bytes == server.bodies.bytes == server.queued.total_bytes == 0
        assert not caught


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("loop", ["asyncio"])
async def test_payload_behind_a_complete_one_does_not_end_the_call(loop: str, answered: bool) -> None:
    """The call was incomplete again. At its deadline its buffer went to other calls while the handler used it; if the
    handler had answered, the check of all connections broke off, and was never made again."""
    async with Served() as (server, _, address):
        caught: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: caught.append(context))
        go_on = asyncio.Event()

        async def write(call: WriteCall) -> None:
            if answered:
                call.reply(pb.WriteReply())
            await go_on.wait()
            if not answered:
                call.reply(pb.WriteReply())

        server.add(WRITE, write)
        async with RawPeer(address) as raw:
            await raw.greet()
            raw.writer.write(request(1, payload_bytes=1000, ms=100) + bytes(1000) + segment(1, 5))
            await asyncio.sleep(0.2)
            server._check_peers()
            assert server.pool.lent == 1 and not caught
            go_on.set()
            header, _ = await raw.frame()
            assert header.kind == frames.RESPONSE and not header.flags
        while server._connections:
            await asyncio.sleep(0.01)
        assert server.pool.lent == server.calls_bytes == 0


async def test_a_check_that_fails_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the service refused all calls after half a minute, as one that was suspended."""
    async with Served() as (server, _, _):
        timer = server._check_timer
        assert timer is not None
        timer.cancel()

        def fails(now: float) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(server._reaper, "check", fails)
        with pytest.raises(ZeroDivisionError):
            server._check_peers()
        assert server._check_timer is not timer


@pytest.mark.parametrize(
    "begun", [b"", frames.encode(frames.HELLO)[:10], announcing(frames.encode(frames.HELLO), 4000)]
)
async def test_a_peer_that_does_not_end_its_hello_is_disconnected(begun: bytes) -> None:
    async with Served(limits=Limits(hello_s=0.2)) as (server, _, address), RawPeer(address) as raw:
        raw.writer.write(begun)
        assert isinstance(await raw.goodbye(), ProtocolError)
        while server._connections:
            await asyncio.sleep(0.01)
        assert not server._unidentified and server.bodies.bytes == 0
