"""A server that nobody treats well."""

import asyncio
import contextlib
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import CapturingLogger

from tests.harness.clocks import SteppedClock
from tests.harness.rpc import LOOPS, RawPeer, Served, announcing, hello_frame, identity, on_a_loop
from threefs.env.net import RealNet
from threefs.errors import ChunkNotFound, Internal, LimitExceeded, ProtocolError, Unavailable, WrongVersion
from threefs.rpc import frames
from threefs.rpc import server as server_module
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.frames import SEGMENT_BYTES
from threefs.rpc.limits import Limits
from threefs.rpc.methods import LAST_CHUNK, READ, SPACE_INFO, WRITE
from threefs.rpc.server import Server
from threefs.rpc.server_connection import Call
from threefs.wire import storage_pb2 as pb


async def space(request: pb.SpaceInfoRequest) -> pb.SpaceInfoReply:
    return pb.SpaceInfoReply()


async def still_serves(server: Server, peers: ConnectionPool, address: str) -> None:
    if SPACE_INFO.number not in server.methods:
        server.serve(SPACE_INFO, space)
    await peers.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=5)


def request(method: int, body: bytes = b"", payload: int = 0, call_id: int = 1) -> bytes:
    return frames.encode(frames.REQUEST, method, 0, call_id, body, payload, 1000, 0)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n", ProtocolError),
        (b"\0" * 64, ProtocolError),
        (request(READ.number), ProtocolError),
        (frames.encode(frames.HELLO, body=b"\xff\xff"), ProtocolError),
        (announcing(frames.encode(frames.HELLO), 2**31), LimitExceeded),
        (b"\x5f\x3f\x07" + bytes(frames.HEADER_BYTES), WrongVersion),
    ],
)
async def test_a_stranger_gets_the_reason_and_is_cut_off(data: bytes, error: type[Exception]) -> None:
    async with Served() as (server, peers, address):
        async with RawPeer(address) as raw:
            raw.writer.write(data)
            assert isinstance(await raw.goodbye(), error)
        await still_serves(server, peers, address)


async def test_a_request_of_before_a_suspension_is_not_taken() -> None:
    """Its repeat may have been made elsewhere so long ago that nobody remembers it."""
    async with Served() as (server, peers, address):
        await still_serves(server, peers, address)
        assert server._reaper._checked_at is not None
        server._reaper._checked_at -= 3600
        with pytest.raises(Unavailable, match="was suspended"):
            await peers.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=5)
        server._check_peers()
        await still_serves(server, peers, address)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (request(WRITE.number, payload=2000), LimitExceeded),
        (request(WRITE.number, b"\xff\xff\xff"), ProtocolError),
        (frames.encode(frames.HELLO), ProtocolError),
        (frames.encode(frames.RESPONSE, call_id=3), ProtocolError),
        (request(WRITE.number, payload=10) + request(WRITE.number, payload=10), ProtocolError),
    ],
)
async def test_a_peer_that_breaks_a_rule_gets_its_name(data: bytes, error: type[Exception]) -> None:
    async with Served(limits=Limits(payload_bytes=1000)) as (server, peers, address):
        server.add(WRITE, lambda call: call.reply(pb.WriteReply()))
        async with RawPeer(address) as raw:
            await raw.greet()
            raw.writer.write(data + bytes(20))
            assert isinstance(await raw.goodbye(), error)
        await still_serves(server, peers, address)
        assert server.pool.lent == 0


async def test_a_peer_that_never_says_hello_does_not_stay() -> None:
    async with Served(limits=Limits(hello_s=0.05)) as (_, _, address), RawPeer(address) as raw:
        assert "HELLO" in str(await raw.goodbye())


async def test_a_peer_that_leaves_in_the_middle_of_its_payload_leaves_nothing_behind() -> None:
    async with Served() as (server, _, address):
        server.add(WRITE, lambda call: call.reply(pb.WriteReply()))
        async with RawPeer(address) as raw:
            await raw.greet()
            raw.writer.write(request(WRITE.number, payload=3 * SEGMENT_BYTES) + bytes(SEGMENT_BYTES))
            await raw.writer.drain()
            while not server.pool.lent:
                await asyncio.sleep(0.01)
        while server.pool.lent:
            await asyncio.sleep(0.01)
        assert not any(session.calls for session in server._connections)


async def test_a_stop_waits_for_what_goes_on_after_its_peer_has_left() -> None:
    async with Served() as (server, peers, address):
        begun, cut_off, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def write(call: Call[pb.WriteRequest, pb.WriteReply]) -> None:
            begun.set()
            try:
                await asyncio.sleep(3600)
            finally:
                cut_off.set()
                await go_on.wait()  # as what a disk is doing

        server.add(WRITE, write)
        calling = asyncio.create_task(peers.call(address, WRITE, pb.WriteRequest(), timeout_s=60))
        await begun.wait()
        await peers.close()
        await cut_off.wait()
        stopping = asyncio.create_task(server.stop(0.0))
        await asyncio.wait([stopping], timeout=0.05)
        assert not stopping.done()
        go_on.set()
        await stopping
        assert not server._connections
        await asyncio.gather(calling, return_exceptions=True)


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_server_with_many_busy_peers_gets_to_its_own_calls(loop: str) -> None:
    """Each peer had its turn in each step of the loop, so the server's own heartbeat waited for thousands of calls, and
    other services took it for dead."""
    clock = SteppedClock()
    flooded = Server(RealNet(), identity("c" * 32), clock=clock)
    taken = 0

    def work(call: Call[pb.WriteRequest, pb.WriteReply]) -> None:
        nonlocal taken
        taken += 1
        clock.advance(0.001)
        call.reply(pb.WriteReply())

    flooded.add(WRITE, work)
    address = await flooded.start("127.0.0.1", 0)
    flood = b"".join(request(WRITE.number, call_id=number) for number in range(1, 101))
    async with Served() as (manager, own_calls, idle_address), contextlib.AsyncExitStack() as peers:
        manager.serve(SPACE_INFO, space)
        await own_calls.connect(idle_address, 5, SPACE_INFO.traffic)
        raw_peers = [await peers.enter_async_context(RawPeer(address)) for _ in range(200)]
        for raw in raw_peers:
            await raw.greet()
        for raw in raw_peers:
            raw.writer.write(flood)
        while not taken:
            await asyncio.sleep(0)
        for _ in range(3):
            before = taken
            await own_calls.call(idle_address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=60)
            assert taken - before < 600, "a call takes some steps of the loop, each with 20 to 25 calls of others"
        before = taken
        await (await peers.enter_async_context(RawPeer(address))).greet()
        assert taken - before < 600, "a newcomer does not wait for the turns of 200 peers, each with 5 calls"
        while taken < 200 * 100:
            await asyncio.sleep(0)
        await flooded.stop(1)


async def test_peers_that_say_hello_in_one_moment_take_the_places_of_as_many() -> None:
    """All found the same idle one, which was still there: each such moment left the server with more connections."""
    async with Served(limits=Limits(connections=10)) as (server, _, address), contextlib.AsyncExitStack() as stack:

        async def newcomers(count: int) -> list[RawPeer]:
            """They are accepted before any of them says anything."""
            found = [await stack.enter_async_context(RawPeer(address)) for _ in range(count)]
            while len(server._unidentified) < count:
                await asyncio.sleep(0)
            return found

        for _ in range(5):
            for raw in await newcomers(2):
                await raw.greet()
        assert server._identified == 10
        for _ in range(4):
            for connection in server._connections:
                connection.progress.idle_since -= 3600.0
            both = await newcomers(2)
            for raw in both:
                raw.writer.write(hello_frame(identity()))
            for raw in both:
                header, _ = await raw.frame()
                assert header.kind == frames.HELLO
            assert server._identified == 10
            while len(server._connections) > 10:
                await asyncio.sleep(0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=300), st.integers(0, 6)), max_size=8), st.integers(0, 2**32))
@on_a_loop
async def test_whatever_comes_after_hello_the_server_stays_up(parts: list[bytes | int], seed: int) -> None:
    valid = [
        request(SPACE_INFO.number),
        request(WRITE.number, payload=5) + b"12345",
        frames.encode(frames.CANCEL, call_id=1),
        frames.encode(frames.SEGMENT, call_id=1, payload_bytes=3) + b"abc",
        request(READ.number, pb.ReadRequest(target=[1]).SerializeToString()),
        frames.encode(frames.PING),
        frames.encode(frames.GOAWAY),
    ]
    async with Served() as (server, peers, address):
        server.serve(SPACE_INFO, space)
        server.add(WRITE, lambda call: call.reply(pb.WriteReply()))
        async with RawPeer(address) as raw:
            await raw.greet()
            raw.writer.write(b"".join(valid[part] if isinstance(part, int) else part for part in parts))
            raw.writer.write_eof()
            await raw.reader.read()
        await still_serves(server, peers, address)
        assert server.pool.lent == 0


async def test_a_handler_that_breaks_is_an_internal_error_and_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    logged = CapturingLogger()
    monkeypatch.setattr(server_module, "_LOG", logged)
    async with Served() as (server, peers, address):

        def read(call: Call[pb.ReadRequest, pb.ReadReply]) -> None:
            raise KeyError("nobody expected this")

        async def write(call: Call[pb.WriteRequest, pb.WriteReply]) -> None:
            raise KeyError("nor this")

        server.add(READ, read)
        server.add(WRITE, write)
        with pytest.raises(Internal, match="KeyError"):
            await peers.call(address, READ, pb.ReadRequest(), timeout_s=5)
        with pytest.raises(Internal, match="KeyError"):
            await peers.call(address, WRITE, pb.WriteRequest(), timeout_s=5, payload=[os.urandom(10)])
        await still_serves(server, peers, address)
        assert server.pool.lent == 0
    assert "nobody expected this" in str(logged.calls)


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_quick_call_waits_if_it_has_to(loop: str) -> None:
    """At once, after a turn of the loop, after a future, with an error at any of these, and cut off by its caller."""
    steps: list[str] = []

    async def quick(asked: pb.LastChunkRequest) -> pb.LastChunkReply:
        try:
            if asked.target >= 1:
                await asyncio.sleep(0)
            if asked.target >= 2:
                await asyncio.sleep(0.001)
            if asked.target >= 3:
                with pytest.raises(ZeroDivisionError):
                    await broken()
            if asked.target == 4:
                await asyncio.Event().wait()
            if asked.inode:
                raise ChunkNotFound("none")
            return pb.LastChunkReply(found=True, index=asked.target)
        finally:
            steps.append("over")

    async def broken() -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    async with Served() as (server, peers, address):
        server.serve(LAST_CHUNK, quick, quick=True)
        for target in range(4):
            asked = pb.LastChunkRequest(target=target)
            assert (await peers.call(address, LAST_CHUNK, asked, timeout_s=30)).index == target
            with pytest.raises(ChunkNotFound):
                await peers.call(address, LAST_CHUNK, pb.LastChunkRequest(target=target, inode=1), timeout_s=30)
        steps.clear()
        endless = asyncio.ensure_future(peers.call(address, LAST_CHUNK, pb.LastChunkRequest(target=4), timeout_s=30))
        await asyncio.sleep(0.05)
        endless.cancel()
        while not steps:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("late", [False, True])
async def test_a_handler_is_answered_for_when_what_it_waits_for_is_cancelled(quick: bool, late: bool) -> None:
    """Nobody had cancelled the call: its caller waited for its whole time."""
    async with Served() as (server, peers, address):

        async def waits(asked: pb.LastChunkRequest) -> pb.LastChunkReply:
            shared = asyncio.get_running_loop().create_future()
            if late:
                asyncio.get_running_loop().call_soon(shared.cancel)
            else:
                shared.cancel()
            return await shared  # type: ignore[no-any-return]

        server.serve(LAST_CHUNK, waits, quick=quick)
        with pytest.raises(Internal, match="CancelledError"):
            await peers.call(address, LAST_CHUNK, pb.LastChunkRequest(), timeout_s=20)
        assert not any(session.calls for session in server._connections)


@pytest.mark.parametrize("end", ["cancel", "connection"])
@pytest.mark.parametrize("loop", LOOPS)
async def test_a_quick_call_that_is_cut_off_as_soon_as_it_was_started_ends_as_any_other(loop: str, end: str) -> None:
    """Its request and its CANCEL came together: it was closed, and could not wait for anything any more."""
    seen: list[str] = []

    async def quick(asked: pb.LastChunkRequest) -> pb.LastChunkReply:
        try:
            await asyncio.Event().wait()
        except BaseException as error:
            seen.append(type(error).__name__)
            raise
        finally:
            await asyncio.sleep(0)
            seen.append("over")
        raise AssertionError

    async with Served() as (server, _, address):
        server.serve(LAST_CHUNK, quick, quick=True)
        async with RawPeer(address) as raw:
            await raw.greet()
            request = frames.encode(frames.REQUEST, LAST_CHUNK.number, 0, 1, b"", 0, 5000)
            cut = frames.encode(frames.CANCEL, call_id=1) if end == "cancel" else b"noise" * 20
            raw.writer.write(request + cut)
            while len(seen) < 2:
                await asyncio.sleep(0.005)
        assert seen == ["CancelledError", "over"]
        while server._connections:
            await asyncio.sleep(0.005)
