import asyncio
from functools import partial

import pytest

from tests.harness.clocks import SteppedClock
from tests.harness.rpc import NETS, Served, identity
from threefs.env.net import RealNet
from threefs.errors import (
    ConnectionLost,
    Internal,
    NotAuthorised,
    NotFound,
    ProtocolError,
    Stopping,
    StrangeStore,
    ThreefsError,
    Unavailable,
)
from threefs.rpc import frames, handshake
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.limits import Limits
from threefs.rpc.methods import SPACE_INFO
from threefs.rpc.traffic_class import TrafficClass
from threefs.wire import common_pb2
from threefs.wire.storage_pb2 import SpaceInfoReply, SpaceInfoRequest


async def space(request: SpaceInfoRequest) -> SpaceInfoReply:
    return SpaceInfoReply()


@pytest.mark.parametrize("net", NETS)
async def test_callers_of_one_address_share_a_connection(net: str) -> None:
    async with Served(net=NETS[net]) as (server, peers, address):
        server.serve(SPACE_INFO, space)
        assert peers.live(address) is None
        await asyncio.gather(*(peers.call(address, SPACE_INFO, SpaceInfoRequest(), timeout_s=5) for _ in range(20)))
        assert len(server._connections) == 1
        assert peers.live(address) is await peers.connect(address, 5)


@pytest.mark.parametrize("net", NETS)
async def test_a_probe_has_a_connection_of_its_own(net: str) -> None:
    async with Served(net=NETS[net]) as (server, peers, address):
        server.serve(SPACE_INFO, space)
        connection = await peers.connect(address, 5)
        await peers.probe(address)
        assert peers.live(address) is connection, "it stays as it was"
        await peers.call(address, SPACE_INFO, SpaceInfoRequest(), timeout_s=5)
        await server.stop(1)
        with pytest.raises(Unavailable):
            await peers.probe(address)


async def test_a_connection_that_is_lost_is_none_of_the_open_ones() -> None:
    """The metrics of a client showed it for ever."""
    async with Served() as (server, peers, address):
        lost: list[str] = []
        peers.on_lost = lambda whose, _: lost.append(whose)
        connection = await peers.connect(address, 5)
        assert peers.connection_count(TrafficClass.DATA) == 1
        await server.stop(1)
        while not connection._stream.closed:
            await asyncio.sleep(0.01)
        assert peers.connection_count(TrafficClass.DATA) == 0 and lost == [address]


async def test_the_end_of_a_process_ends_calls_at_a_service_that_was_stopping() -> None:
    """Others had taken the place of their connection, which stayed open, and the calls waited for their whole time."""
    async with Served() as (server, peers, address):

        async def never(request: SpaceInfoRequest) -> SpaceInfoReply:
            await asyncio.sleep(60)
            return SpaceInfoReply()

        server.serve(SPACE_INFO, never)
        old = await peers.connect(address, 5)
        call = old.call(SPACE_INFO, SpaceInfoRequest(), timeout_s=50)
        await old.ping(5)
        (session,) = server._connections
        session.stream.send(frames.encode(frames.GOAWAY, body=frames.error_body(Stopping("soon"))))
        while not old.closing:
            await asyncio.sleep(0.01)
        assert await peers.connect(address, 5) is not old and not call.done()
        await peers.close()
        with pytest.raises(ConnectionLost):
            await asyncio.wait_for(call, 5)


async def test_an_idle_connection_whose_service_was_stopping_ends_when_another_takes_its_place() -> None:
    """It belonged to nobody any more, and stayed if the service hung while it stopped, also when this process ended."""
    async with Served() as (server, peers, address):
        lost: list[str] = []
        peers.on_lost = lambda whose, _: lost.append(whose)
        old = await peers.connect(address, 5)
        (session,) = server._connections
        session.stream.send(frames.encode(frames.GOAWAY, body=frames.error_body(Stopping("soon"))))
        while not old.closing:
            await asyncio.sleep(0.01)
        new = await peers.connect(address, 5)
        assert new is not old and old._stream.closed and peers.live(address) is new
        assert not lost, "nobody has lost anything by this"


async def test_a_call_whose_time_is_over_before_there_is_a_connection_is_not_sent() -> None:
    """It was sent, with no time left, and its caller had to believe that it may have had its effect."""
    async with Served() as (server, _, address):
        asked: list[SpaceInfoRequest] = []

        async def counted(request: SpaceInfoRequest) -> SpaceInfoReply:
            asked.append(request)
            return SpaceInfoReply()

        server.serve(SPACE_INFO, counted)
        clock = SteppedClock(step_s=3.0)  # between any two looks
        peers = ConnectionPool(RealNet(), identity(), clock=clock)
        with pytest.raises(Unavailable, match="over before it could be sent"):
            await peers.call(address, SPACE_INFO, SpaceInfoRequest(), timeout_s=2.0)
        connection = await peers.connect(address, 5, SPACE_INFO.traffic)
        with pytest.raises(Unavailable, match="over before it could be sent"):
            await peers.call(address, SPACE_INFO, SpaceInfoRequest(), timeout_s=0)
        await connection.ping(5)
        assert not asked
        await peers.close()


async def test_a_check_ends_connections_that_do_not_answer_and_no_others() -> None:
    async with Served() as (server, peers, address):
        server.serve(SPACE_INFO, space)
        working = await peers.connect(address, 5)
        dead = await peers.connect(address, 5, TrafficClass.REPLICATION)
        of_dead = next(one for one in server._connections if one.traffic is TrafficClass.REPLICATION)
        of_dead._socket.on_readable(None)  # the service reads nothing from it any more
        waiting = asyncio.create_task(
            peers.call(address, SPACE_INFO, SpaceInfoRequest(), timeout_s=60, traffic=TrafficClass.REPLICATION)
        )
        await asyncio.sleep(0)
        await peers.check(address, 1.0)
        with pytest.raises(ConnectionLost, match="has not answered a ping"):
            await waiting
        assert peers.live(address) is working and peers.live(address, TrafficClass.REPLICATION) is not dead
        await peers.call(address, SPACE_INFO, SpaceInfoRequest(), timeout_s=5, traffic=TrafficClass.REPLICATION)


async def test_an_optional_call_is_left_out_where_it_would_wait_or_not_be_understood() -> None:
    release = asyncio.Event()

    async def slow(request: SpaceInfoRequest) -> SpaceInfoReply:
        await release.wait()
        return SpaceInfoReply()

    async with Served(limits=Limits(calls=1)) as (server, peers, address):
        server.serve(SPACE_INFO, slow)
        optional = partial(peers.begin_optional, address, SPACE_INFO, SpaceInfoRequest(), timeout_s=5)
        assert optional(feature=1) is None and not peers.has_feature(address, 1), "there is no connection yet"
        connection = await peers.connect(address, 5)
        assert connection.features == handshake.FEATURES
        assert peers.has_feature(address, 1) and not peers.has_feature(address, 1 << 30)
        assert optional(feature=1 << 30) is None, "no service knows this yet"
        sent: list[str] = []
        call = optional(feature=1, sent=lambda: sent.append("all of it"))
        assert call is not None and sent == ["all of it"]
        assert optional(feature=1) is None, "it takes one call at a time"
        release.set()
        assert await call == SpaceInfoReply()


async def test_a_missing_server_is_reported_with_the_address() -> None:
    peers = ConnectionPool(RealNet(), identity())
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        await peers.call("127.0.0.1:1", SPACE_INFO, SpaceInfoRequest(), timeout_s=1)
    await peers.close()


async def test_a_listener_that_says_nothing_is_unavailable() -> None:
    left = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        await reader.read()
        writer.close()
        left.set()

    silent = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    peers = ConnectionPool(RealNet(), identity(), limits=Limits(connect_s=0.5))
    with pytest.raises(Unavailable, match="HELLO"):
        await peers.call(f"127.0.0.1:{port}", SPACE_INFO, SpaceInfoRequest(), timeout_s=10)
    await peers.close()
    await left.wait()
    silent.close()


async def test_a_restarted_server_is_found_again() -> None:
    async with Served() as (server, peers, address):
        server.serve(SPACE_INFO, space)
        await peers.call(address, SPACE_INFO, SpaceInfoRequest(), timeout_s=5)
        await server.stop(1)
        with pytest.raises(Unavailable):
            await peers.call(address, SPACE_INFO, SpaceInfoRequest(), timeout_s=1)
        again = Served()
        again.server.serve(SPACE_INFO, space)
        host, port = address.rsplit(":", 1)
        assert await again.server.start(host, int(port)) == address
        await peers.call(address, SPACE_INFO, SpaceInfoRequest(), timeout_s=5)
        await again.server.stop(1)


@pytest.mark.parametrize("loop", ["asyncio"])
async def test_a_close_during_a_connect_keeps_no_connection_and_cancels_no_other_call(loop: str) -> None:
    """After each number of turns of the loop. A caller that nobody cancelled ended as if it had been."""
    async with Served() as (server, _, address):
        server.serve(SPACE_INFO, space)
        answered = 0
        for turns in range(1, 40):
            peers = ConnectionPool(RealNet(), identity())
            calls = [
                asyncio.create_task(peers.call(address, SPACE_INFO, SpaceInfoRequest(), timeout_s=5)) for _ in range(2)
            ]
            for _ in range(turns):
                await asyncio.sleep(0)
            closing = peers.close()
            calls[1].cancel()
            await closing
            first, second = await asyncio.gather(*calls, return_exceptions=True)
            assert isinstance(first, SpaceInfoReply | ThreefsError), (turns, first)
            assert isinstance(second, SpaceInfoReply | ThreefsError | asyncio.CancelledError), (turns, second)
            answered += isinstance(first, SpaceInfoReply)
            assert peers.live(address) is None
            while server._connections:
                await asyncio.sleep(0.001)
        assert answered < 39


@pytest.mark.parametrize("key", ["", "k" * 32])
async def test_a_process_on_the_port_of_a_service_is_not_taken_for_it(key: str) -> None:
    """Once somebody has proven the key. Whoever has met nobody else may have the wrong key, and is told at once."""
    peers = ConnectionPool(RealNet(), identity(token="s" * 32))
    served = Served(mine=identity("c" * 32, token="s" * 32))
    served.server.serve(SPACE_INFO, space)
    address = await served.server.start("127.0.0.1", 0)
    await peers.call(address, SPACE_INFO, SpaceInfoRequest(), timeout_s=5)
    await served.server.stop(1)
    impostor = Served(mine=identity("c" * 32, token=key))
    host, port = address.rsplit(":", 1)
    await impostor.server.start(host, int(port))
    with pytest.raises(Unavailable, match=f"no service of this cluster listens at {address}"):
        await peers.call(address, SPACE_INFO, SpaceInfoRequest(), timeout_s=5)
    stranger = ConnectionPool(RealNet(), identity(token="s" * 32))
    with pytest.raises(NotAuthorised):
        await stranger.call(address, SPACE_INFO, SpaceInfoRequest(), timeout_s=5)
    await stranger.close()
    await peers.close()
    await impostor.server.stop(1)


def _goaway(error: ThreefsError) -> bytes:
    body = common_pb2.Error(code=error.code, message="go away").SerializeToString()
    return frames.encode(frames.GOAWAY, body=body)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(_goaway(NotFound()), id="not-found"),
        pytest.param(_goaway(StrangeStore()), id="strange-store"),
        pytest.param(_goaway(Internal()), id="unknown-outcome"),
        pytest.param(b"HTTP/1.1 400 \r\n" * 9, id="http"),
    ],
)
@pytest.mark.parametrize("key", [pytest.param("", id="no-key"), pytest.param("s" * 32, id="key")])
async def test_what_a_stranger_says_at_the_port_of_a_dead_service_is_no_answer(key: str, said: bytes) -> None:
    """With a word of his a file seemed to be gone, or a store to be a strange one."""

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await reader.read(1000)
        writer.close()

    served = Served(mine=identity("c" * 32, token=key), theirs=identity(token=key))
    newcomer = ConnectionPool(RealNet(), identity(token=key))
    served.server.serve(SPACE_INFO, space)
    async with served as (server, peers, address):
        await peers.call(address, SPACE_INFO, SpaceInfoRequest(), timeout_s=5)
        await server.stop(1)
        host, port = address.rsplit(":", 1)
        async with await asyncio.start_server(say, host, int(port)):
            outcomes = await asyncio.gather(
                *(pool.call(address, SPACE_INFO, SpaceInfoRequest(), timeout_s=5) for pool in (peers, newcomer)),
                return_exceptions=True,
            )
    await newcomer.close()
    assert isinstance(outcomes[0], Unavailable) and isinstance(outcomes[1], Unavailable | ProtocolError), outcomes
    assert f"no service of this cluster listens at {address}" in str(outcomes[0])
