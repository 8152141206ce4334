"""What services can make a client hold is bounded."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from tests.harness.rpc import Served, identity
from threefs.env.net import RealNet
from threefs.errors import ThreefsError
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.limits import Limits
from threefs.rpc.methods import WRITE
from threefs.rpc.receive_buffers import BodyBudget
from threefs.rpc.server_connection import Call
from threefs.wire import storage_pb2 as pb

MIB = 1 << 20
#: More than the sockets hold, so such a body comes in parts.
LARGE_BODY = 24 * MIB
LARGE_BODIES = Limits(body_bytes=2 * LARGE_BODY, bodies_bytes=LARGE_BODY + MIB)


def answer_largely(call: Call[pb.WriteRequest, pb.WriteReply]) -> None:
    call.reply(pb.WriteReply(results=[pb.ChunkWriteResult(message="x" * LARGE_BODY)]))


async def test_bodies_of_answers_that_a_client_receives_have_a_bound_of_all_connections() -> None:
    """As the lists of large directories, of many meta services at the same time."""
    most, waited = 0, 0

    class Counted(BodyBudget):
        __slots__ = ()

        def take(self, size: int) -> bool:
            nonlocal most, waited
            taken = super().take(size)
            most, waited = max(most, self.bytes), waited + (not taken)
            return taken

    async with AsyncExitStack() as stack:
        services = [await stack.enter_async_context(Served(limits=LARGE_BODIES)) for _ in range(3)]
        peers = ConnectionPool(RealNet(), identity(), limits=LARGE_BODIES)
        stack.push_async_callback(peers.close)
        peers.bodies = Counted(LARGE_BODIES.bodies_bytes)
        for server, _, _ in services:
            server.add(WRITE, answer_largely)
        calls = [peers.call(address, WRITE, pb.WriteRequest(), timeout_s=60) for _, _, address in services]
        for reply in await asyncio.gather(*calls):
            assert len(reply.results[0].message) == LARGE_BODY
        assert waited and LARGE_BODY <= most <= LARGE_BODIES.bodies_bytes and not peers.bodies.bytes


async def test_a_lost_connection_gives_back_the_room_of_a_body() -> None:
    async with Served(limits=LARGE_BODIES) as (server, _, address):
        server.add(WRITE, answer_largely)
        peers = ConnectionPool(RealNet(), identity(), limits=LARGE_BODIES)
        connection = await peers.connect(address, 5)
        call = connection.call(WRITE, pb.WriteRequest(), timeout_s=60)
        while not peers.bodies.bytes and not call.done():
            await asyncio.sleep(0)
        assert peers.bodies.bytes > LARGE_BODY
        connection.close()
        with pytest.raises(ThreefsError):
            await call
        assert not peers.bodies.bytes
        await peers.close()
