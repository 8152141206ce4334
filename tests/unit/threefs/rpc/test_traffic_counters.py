import asyncio
import socket

import pytest

from tests.harness.rpc import NETS, RawPeer, Served
from threefs.env.net import SocketStream
from threefs.rpc.methods import READ, SPACE_INFO, WRITE
from threefs.rpc.traffic_class import DEFAULT_DSCP, TrafficClass
from threefs.wire import storage_pb2 as pb


async def space(request: pb.SpaceInfoRequest) -> pb.SpaceInfoReply:
    return pb.SpaceInfoReply()


@pytest.mark.parametrize("net", NETS)
async def test_each_class_has_a_connection_of_its_own_and_is_counted_apart(net: str) -> None:
    async with Served(net=NETS[net]) as (server, peers, address):
        server.serve(SPACE_INFO, space)
        for times, traffic in enumerate(TrafficClass, 1):
            for _ in range(times):
                await peers.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=5, traffic=traffic)
        connections = {peers.live(address, traffic) for traffic in TrafficClass}
        assert None not in connections and len(connections) == len(TrafficClass)
        found = server.traffic
        assert [found[traffic].calls for traffic in TrafficClass] == [1, 2, 3, 4]
        assert {counters.connections for counters in found.values()} == {1}
        assert {counters.in_flight for counters in found.values()} == {0}
        assert found[TrafficClass.BACKGROUND].received_bytes > found[TrafficClass.DATA].received_bytes > 0


async def test_both_ends_mark_their_packets() -> None:
    async with Served(net=NETS["tcp"]) as (server, peers, address):
        server.serve(SPACE_INFO, space)
        for traffic in TrafficClass:
            await peers.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=5, traffic=traffic)
            here = next(c for c in server._connections if c.traffic is traffic)
            there = peers.live(address, traffic)
            assert there is not None
            for stream in (here._socket, there._stream._stream):
                assert isinstance(stream, SocketStream)
                dscp = stream._socket.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) >> 2
                assert dscp == DEFAULT_DSCP.mark(traffic).dscp


async def test_calls_in_flight_and_the_bytes_of_lost_connections_are_counted() -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def wait(request: pb.SpaceInfoRequest) -> pb.SpaceInfoReply:
        begun.set()
        await may_end.wait()
        return pb.SpaceInfoReply()

    async with Served() as (server, peers, address):
        server.serve(SPACE_INFO, wait)
        server.add(WRITE, lambda call: call.reply(pb.WriteReply()))
        counters = server.traffic[TrafficClass.REPLICATION]
        waiting = asyncio.create_task(
            peers.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=5, traffic=TrafficClass.REPLICATION)
        )
        await begun.wait()
        assert counters.in_flight == 1 and counters.last_call_s > 0
        may_end.set()
        await waiting
        assert counters.in_flight == 0
        await peers.call(
            address,
            WRITE,
            pb.WriteRequest(),
            timeout_s=5,
            payload=[bytes(100_000)],
            traffic=TrafficClass.REPLICATION,
        )
        before = counters.received_bytes
        assert before > 100_000
        await peers.close()
        while counters.connections:
            await asyncio.sleep(0.001)
        assert counters.received_bytes == before


async def test_a_peer_that_names_no_class_sends_data() -> None:
    async with Served() as (server, _, address):
        server.add(READ, lambda call: call.reply(pb.ReadReply()))
        async with RawPeer(address) as raw:
            await raw.greet()
            assert server.traffic[TrafficClass.DATA].connections == 1
