"""Request-to-send: an answer that waits for its grant, from both sides of a connection."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.rpc import RawPeer, Served
from threefs.errors import Overloaded, ProtocolError, ThreefsError
from threefs.rpc import frames
from threefs.rpc.client_connection import ClientConnection
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.limits import Limits
from threefs.rpc.methods import READ
from threefs.rpc.server import Server
from threefs.rpc.server_connection import Call
from threefs.wire import storage_pb2 as pb

KIB = 1 << 10
ReadCall = Call[pb.ReadRequest, pb.ReadReply]


def serve(server: Server, size: int = 100 * KIB) -> None:
    """Answer with a pooled buffer, as reads do."""

    def read(call: ReadCall) -> None:
        call.make_room(size)
        buffer = server.pool.take(size)
        buffer[:size] = b"x" * size
        call.reply(pb.ReadReply(), [buffer[:size]], lambda: server.pool.give(buffer))

    server.add(READ, read)


class Reading:
    """Calls that wait for grants, and their grants in the order in which the answers were announced."""

    def __init__(self, connection: ClientConnection, size: int = 100 * KIB) -> None:
        self.connection = connection
        self.memory = [memoryview(bytearray(size))]
        self.grants: list[Callable[[], None]] = []

    def call(self, timeout_s: float = 20.0) -> "asyncio.Future[Any]":
        return self.connection.call(
            READ,
            pb.ReadRequest(),
            timeout_s=timeout_s,
            sink=lambda *_: self.memory,
            ready=self.grants.append,
        )

    async def announced(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.grants) < count:
                await asyncio.sleep(0.001)


async def at_rest(server: Server) -> None:
    while server.pool.lent or server.held.bytes or server.calls_bytes:
        await asyncio.sleep(0.001)


async def reading(peers: ConnectionPool, address: str, size: int = 100 * KIB) -> Reading:
    return Reading(await peers.connect(address, 5), size)


async def test_an_answer_comes_after_its_grant_and_not_before() -> None:
    async with Served() as (server, peers, address):
        serve(server)
        reads = await reading(peers, address)
        call = reads.call()
        await reads.announced(1)
        await reads.connection.ping(5)  # all that was sent before has come
        assert not call.done() and server.held.bytes == 100 * KIB <= server.pool.lent_bytes
        reads.grants[0]()
        await call
        assert bytes(reads.memory[0]) == b"x" * 100 * KIB
        await at_rest(server)
        assert (server.held.announced, server.held.granted) == (1, 1)


async def test_grants_may_come_in_any_order() -> None:
    async with Served() as (server, peers, address):
        serve(server)
        reads = await reading(peers, address)
        calls = [reads.call() for _ in range(4)]
        await reads.announced(4)
        for number in (2, 0, 3, 1):
            reads.grants[number]()
            await calls[number]
        await at_rest(server)


async def test_small_answers_and_errors_need_no_grant() -> None:
    async with Served() as (server, peers, address):
        serve(server, frames.UNGRANTED_BYTES)
        reads = await reading(peers, address, frames.UNGRANTED_BYTES)
        await reads.call()
        await at_rest(server)
    async with Served() as (server, peers, address):

        def refuse(call: ReadCall) -> None:
            call.make_room(100 * KIB)
            raise Overloaded("no")

        server.add(READ, refuse)
        reads = await reading(peers, address)
        with pytest.raises(Overloaded):
            await reads.call()
        assert not reads.grants and not server.held.announced
        await at_rest(server)


async def test_a_call_that_needs_no_grant_is_answered_at_once() -> None:
    async with Served() as (server, peers, address):
        serve(server)
        memory = [memoryview(bytearray(100 * KIB))]
        await peers.call(address, READ, pb.ReadRequest(), timeout_s=5, sink=lambda *_: memory)
        assert not server.held.announced


@pytest.mark.parametrize("how", ["cancel", "deadline", "disconnect"])
async def test_an_answer_to_a_cancelled_call_is_given_up(how: str) -> None:
    async with Served() as (server, peers, address):
        serve(server)
        reads = await reading(peers, address)
        call = reads.call(timeout_s=0.2 if how == "deadline" else 20.0)
        await reads.announced(1)
        if how == "cancel":
            call.cancel()
        elif how == "disconnect":
            reads.connection.close()
        with pytest.raises((asyncio.CancelledError, ThreefsError)):
            await call
        await at_rest(server)
        reads.grants[0]()  # it comes late, and means nothing
        assert server.held.cancelled == 1 and not server.held.granted
        if how != "disconnect":
            await reads.connection.ping(5)


async def test_an_answer_without_a_grant_in_time_is_dropped_and_its_caller_reads_so() -> None:
    async with Served(limits=Limits(grant_s=0.01)) as (server, peers, address):
        serve(server)
        reads = await reading(peers, address)
        with pytest.raises(Overloaded, match="GRANT"):
            await reads.call()
        reads.grants[0]()
        await reads.connection.ping(5)
        assert server.held.expired == 1
        await at_rest(server)


async def test_waiting_answers_are_bounded_and_further_calls_are_throttled() -> None:
    """One connection gets half of the memory at most, all together no more than there is."""
    limits = Limits(held_bytes=1600 * KIB)
    async with Served(limits=limits) as (server, peers, address), Served() as (_, others, _):
        serve(server)
        reads, beside = await reading(peers, address), await reading(others, address)
        calls = [reads.call() for _ in range(8)]
        await reads.announced(8)
        with pytest.raises(Overloaded, match="wait for a GRANT"):
            await reads.call()
        calls += [beside.call(), beside.call()]
        await beside.announced(2)
        with pytest.raises(Overloaded, match="wait for a GRANT"):
            await beside.call()
        assert server.held.bytes == 1000 * KIB and server.held.refused == 2
        memory = [memoryview(bytearray(100 * KIB))]
        await peers.call(address, READ, pb.ReadRequest(), timeout_s=5, sink=lambda *_: memory)
        for grant in (*reads.grants, *beside.grants):
            grant()
        await asyncio.gather(*calls)
        await at_rest(server)
        again = reads.call()
        await reads.announced(9)
        reads.grants[8]()
        await again


async def test_more_answers_wait_than_a_connection_may_have_queued_and_their_grants_are_heard() -> None:
    """While answers wait for the peer to take them its calls are not read. Those that wait for a grant are no such
    ones: the grant would never be read."""
    limits = Limits(queued_bytes=256 * KIB)
    async with Served(limits=limits) as (server, peers, address):
        serve(server)
        reads = await reading(peers, address)
        calls = [reads.call() for _ in range(20)]
        await reads.announced(20)
        for grant in reads.grants:
            grant()
        await asyncio.gather(*calls)
        await at_rest(server)


async def test_a_grant_for_an_answer_that_was_not_announced_ends_the_connection() -> None:
    async with Served() as (server, _, address):
        waiting: list[ReadCall] = []
        server.add(READ, waiting.append)
        async with RawPeer(address) as peer:
            await peer.greet()
            peer.writer.write(frames.encode(frames.GRANT, call_id=8))  # of a call that is over
            peer.writer.write(frames.encode(frames.REQUEST, READ.number, call_id=7, deadline_ms=5000))
            peer.writer.write(frames.encode(frames.GRANT, call_id=7))
            error = await peer.goodbye()
        assert isinstance(error, ProtocolError) and "not announced" in str(error)
        waiting[0].reply(pb.ReadReply())


async def test_a_server_that_stops_sends_what_is_granted_before_it_ends() -> None:
    async with Served() as (server, peers, address):
        serve(server)
        reads = await reading(peers, address)
        call = reads.call()
        await reads.announced(1)
        stop = asyncio.ensure_future(server.stop(5.0))
        await asyncio.sleep(0.05)
        reads.grants[0]()
        await call
        await stop
        assert not server.pool.lent
