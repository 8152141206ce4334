"""A call at the service, and the buffer of its payload."""

import asyncio
import errno
import os

import pytest

from tests.harness.rpc import RawPeer, Served
from threefs.errors import ConnectionLost, DeadlineExceeded, LimitExceeded, Overloaded, Retry, Unavailable
from threefs.rpc import frames
from threefs.rpc.limits import Limits
from threefs.rpc.methods import READ, WRITE
from threefs.rpc.server_connection import Call
from threefs.wire import storage_pb2 as pb

WriteCall = Call[pb.WriteRequest, pb.WriteReply]


async def test_a_call_knows_its_peer_its_time_and_its_number() -> None:
    async with Served() as (server, peers, address):
        seen: list[WriteCall] = []

        def write(call: WriteCall) -> None:
            assert call.peer is not None and call.peer.client_id == peers.identity.client_id
            assert 0 < call.remaining_s() <= 5
            seen.append(call)
            call.reply(pb.WriteReply())

        server.add(WRITE, write)
        await peers.call(address, WRITE, pb.WriteRequest(), timeout_s=5, request_id=77)
        assert seen[0].request_id == 77


async def test_the_payload_stays_until_handler_and_answer_are_done() -> None:
    async with Served() as (server, peers, address):
        data = os.urandom(100_000)
        after_reply: list[bytes] = []

        async def write(call: WriteCall) -> None:
            call.reply(pb.WriteReply())
            await asyncio.sleep(0.02)
            after_reply.append(bytes(call.payload))

        server.add(WRITE, write)
        await peers.call(address, WRITE, pb.WriteRequest(), timeout_s=5, payload=[data])
        assert server.pool.lent == 1
        while server.pool.lent:
            await asyncio.sleep(0.01)
        assert after_reply == [data]


async def test_an_answer_may_come_after_the_handler() -> None:
    async with Served() as (server, peers, address):
        waiting: list[WriteCall] = []
        server.add(WRITE, waiting.append)
        connection = await peers.connect(address, 5)
        call = connection.call(WRITE, pb.WriteRequest(), timeout_s=5, payload=[b"abc"])
        while not waiting:
            await asyncio.sleep(0.01)
        assert bytes(waiting[0].payload) == b"abc" and server.pool.lent == 1
        waiting[0].reply(pb.WriteReply(routing_version=3))
        assert (await call).routing_version == 3
        assert server.pool.lent == 0


async def test_a_call_whose_caller_gave_up_leaves_nothing_behind() -> None:
    async with Served() as (server, peers, address):

        async def write(call: WriteCall) -> None:
            await asyncio.sleep(30)

        server.add(WRITE, write)
        await peers.connect(address, 30)  # the time of the call may be over before there is a connection
        with pytest.raises(DeadlineExceeded):
            await peers.call(address, WRITE, pb.WriteRequest(), timeout_s=0.05, payload=[bytes(1000)])
        while server.pool.lent or any(session.calls for session in server._connections):
            await asyncio.sleep(0.01)


async def test_a_call_too_many_is_refused_and_may_be_made_again() -> None:
    """By a peer that does not keep to what it was told."""
    limits = Limits(calls=2, inflight_bytes=1000)
    async with Served(limits=limits) as (server, peers, address):
        waiting: list[WriteCall] = []
        server.add(WRITE, waiting.append)
        connection = await peers.connect(address, 5)
        connection._window.max_calls, connection._window.most_bytes = 100, 10_000
        kept = [connection.call(WRITE, pb.WriteRequest(), timeout_s=5, payload=[bytes(400)]) for _ in range(2)]
        with pytest.raises(Overloaded, match="2 calls"):
            await connection.call(WRITE, pb.WriteRequest(), timeout_s=5)
        for call in waiting:
            call.reply(pb.WriteReply())
        await asyncio.gather(*kept)
        waiting.clear()
        first = connection.call(WRITE, pb.WriteRequest(), timeout_s=5, payload=[bytes(600)])
        with pytest.raises(Overloaded, match="more than 1000"):
            await connection.call(WRITE, pb.WriteRequest(), timeout_s=5, payload=[bytes(401)])
        assert Overloaded.retry is Retry.SAFE
        waiting[0].reply(pb.WriteReply())
        await first


async def test_a_service_without_methods_is_still_starting() -> None:
    async with Served() as (_, peers, address):
        with pytest.raises(Unavailable, match="starting"):
            await peers.call(address, READ, pb.ReadRequest(), timeout_s=5)


async def test_more_payload_than_announced_is_a_broken_rule() -> None:
    async with Served() as (server, _, address):
        server.add(WRITE, lambda call: call.reply(pb.WriteReply()))
        async with RawPeer(address) as raw:
            await raw.greet()
            size = frames.SEGMENT_BYTES + 10
            raw.writer.write(frames.encode(frames.REQUEST, WRITE.number, 0, 1, b"", size, 1000))
            raw.writer.write(bytes(frames.SEGMENT_BYTES))
            raw.writer.write(frames.encode(frames.SEGMENT, call_id=1, payload_bytes=11) + bytes(11))
            assert "more payload" in str(await raw.goodbye())
        while server.pool.lent:
            await asyncio.sleep(0.01)


async def test_a_request_counts_with_the_memory_that_its_rows_take() -> None:
    """20 requests of a megabyte of empty rows, whose payload did not come, took 2 GiB. The bound of requests in flight
    took them for 20 MiB."""
    limits = Limits(calls_bytes=32 << 20)
    async with Served(limits=limits) as (server, peers, address):
        server.add(WRITE, lambda call: call.reply(pb.WriteReply()))
        too_many, many = b"\x0a\0" * (1 << 19), b"\x0a\0" * (1 << 15)
        async with RawPeer(address) as raw:
            await raw.greet()
            raw.writer.write(frames.encode(frames.REQUEST, WRITE.number, 0, 1, too_many, 0, 60_000))
            header, body = await raw.frame()
            assert (header.kind, header.call_id) == (frames.RESPONSE, 1)
            assert isinstance(frames.error_from(body), LimitExceeded), "an answer, and the connection goes on"
            for call_id in range(2, 22):  # the rest of their payload does not come
                raw.writer.write(frames.encode(frames.REQUEST, WRITE.number, 0, call_id, many, 300 << 10, 60_000))
                raw.writer.write(bytes(256 << 10))
            refused = set[int]()
            while len(refused) < 19:
                header, body = await raw.frame()
                assert isinstance(frames.error_from(body), Overloaded)
                refused.add(header.call_id)
            assert 0 < server.calls_bytes <= limits.calls_bytes
        while server.calls_bytes:
            await asyncio.sleep(0.005)
        await peers.call(address, WRITE, pb.WriteRequest(), timeout_s=5)


@pytest.mark.parametrize("loop", ["asyncio"])
async def test_a_call_for_which_the_system_has_no_memory_leaves_nothing(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was counted before its buffer was taken, and for ever."""
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    async with Served() as (server, peers, address):
        server.add(WRITE, lambda call: call.reply(pb.WriteReply()))
        connection = await peers.connect(address, 5)

        def take(length_bytes: int) -> memoryview:
            raise OSError(errno.ENOMEM, "no memory")

        monkeypatch.setattr(server.pool, "take", take)
        with pytest.raises(ConnectionLost):
            await connection.call(WRITE, pb.WriteRequest(), timeout_s=20, payload=[bytes(1000)])
        while server._connections:
            await asyncio.sleep(0.01)
        assert server.calls_bytes == 0
