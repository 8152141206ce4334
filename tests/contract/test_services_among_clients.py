"""Heartbeats share the port of clients. Whatever clients do, services have room for a connection and for a call."""

import asyncio
import dataclasses
import resource
from contextlib import AsyncExitStack

import pytest

from tests.harness.children import in_child
from tests.harness.rpc import RawPeer, Served, identity
from threefs.env.net import RealNet
from threefs.errors import Overloaded
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.handshake import SERVICES
from threefs.rpc.limits import Limits
from threefs.rpc.methods import SPACE_INFO, WRITE
from threefs.rpc.server import Server
from threefs.rpc.server_connection import Call
from threefs.wire import storage_pb2 as pb

MIB = 1 << 20


async def space(request: pb.SpaceInfoRequest) -> pb.SpaceInfoReply:
    return pb.SpaceInfoReply()


def peer(program: str = "python", token: str = "") -> ConnectionPool:
    return ConnectionPool(RealNet(), dataclasses.replace(identity(token=token), program=program))


@pytest.mark.parametrize("token", ["", "a key of the cluster"])
async def test_who_says_nothing_takes_no_place_of_the_reserve(token: str) -> None:
    """The reserve was full of peers that had not sent HELLO, as long as somebody made new ones."""
    limits, mine = Limits(connections=16), identity("c" * 32, token=token)
    async with Served(limits=limits, mine=mine) as (server, _, address), AsyncExitStack() as stack:
        server.serve(SPACE_INFO, space)
        pools = [peer(token=token) for _ in range(16)] + [peer("threefs-storage", token) for _ in range(4)]
        for number, pool in enumerate(pools):
            stack.push_async_callback(pool.close)
            if number >= 16:
                for _ in range(4):
                    await stack.enter_async_context(RawPeer(address))
            await pool.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=5)
        extra = peer("threefs-storage", token)
        stack.push_async_callback(extra.close)
        with pytest.raises(Overloaded, match="16 connections"):
            await extra.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=5)
        assert len(server._connections) <= 16 + 4 + 4


@pytest.mark.parametrize("token", ["", "a key of the cluster"])
async def test_who_says_nothing_takes_no_place_of_a_client(token: str) -> None:
    """Clients were refused although there were places, and lost connections, one for each peer that said nothing."""
    limits, mine = Limits(connections=16), identity("c" * 32, token=token)
    async with Served(limits=limits, mine=mine) as (server, _, address), AsyncExitStack() as stack:
        server.serve(SPACE_INFO, space)
        pools = [peer(token=token) for _ in range(16)]
        for number, pool in enumerate(pools):
            stack.push_async_callback(pool.close)
            if number == 15:
                for _ in range(8):
                    await stack.enter_async_context(RawPeer(address))
                while len(server._unidentified) < 4:
                    await asyncio.sleep(0.005)
            await pool.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=5)
        for connection in server._connections:
            connection.progress.idle_since -= 100.0 if connection.hello is not None else 0.0
        for _ in range(8):
            await stack.enter_async_context(RawPeer(address))
        await asyncio.sleep(0.05)
        assert all(pool.live(address) for pool in pools)


async def test_calls_of_clients_that_wait_leave_room_for_those_of_services() -> None:
    """Some connections with thousands of calls each, which wait for the next routing, kept heartbeats out."""
    async with Served(limits=Limits(calls_bytes=MIB)) as (server, _, address), AsyncExitStack() as stack:
        held: list[Call[pb.WriteRequest, pb.WriteReply]] = []
        server.add(WRITE, lambda call: held.append(call))
        server.serve(SPACE_INFO, space)
        pools = [peer() for _ in range(16)] + [peer(program) for program in SERVICES]
        for pool in pools:
            stack.push_async_callback(pool.close)
            await pool.connect(address, 5)
        waiting = [
            (await pool.connect(address, 5)).call(WRITE, pb.WriteRequest(), timeout_s=30)
            for pool in pools[:16]
            for _ in range(100)
        ]
        while sum(call.done() for call in waiting) + len(held) < len(waiting):
            await asyncio.sleep(0.005)
        with pytest.raises(Overloaded, match="in flight"):
            await pools[0].call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=5)
        for pool in pools[16:]:
            await pool.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=5)
        for call in held:
            call.reply(pb.WriteReply())
        await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.parametrize("soft", [100, 1024, 4096, 7000])
def test_the_reserve_is_within_the_limit_of_open_files(soft: int) -> None:
    """The store of the same process fails when it cannot open its files."""

    def child() -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        server = Server(RealNet(), identity())
        clients = server._max_connections
        control = soft // 8
        assert 0 < clients <= 4096
        assert clients + clients // 4 + server._max_unidentified + control <= soft - min(512, soft // 4)

    assert in_child(child) == 0
