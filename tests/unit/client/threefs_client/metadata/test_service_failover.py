import asyncio
import contextlib
from collections.abc import Sequence

import pytest
from threefs_client.metadata.service_failover import ServiceFailover

from tests.harness.rpc import Served, hello_frame, identity
from tests.harness.seeded_random import SeededRandom
from threefs.env.net import RealNet
from threefs.errors import ConnectionLost, Unavailable
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.limits import Limits
from threefs.rpc.methods import STAT
from threefs.wire import meta_pb2 as pb


class Hanging:
    """Says HELLO, and nothing from then on; like a process that was stopped."""

    def __init__(self) -> None:
        self._talks: list[asyncio.Future[None]] = []

    async def __aenter__(self) -> str:
        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._talks.append(ended)
            writer.write(hello_frame(identity("c" * 32)))
            while await reader.read(1 << 16):
                pass
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            ended.set_result(None)

        self._server = await asyncio.start_server(listen, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await asyncio.gather(*self._talks)


async def slow(request: pb.StatRequest) -> pb.InodeReply:
    await asyncio.sleep(1.5)
    return pb.InodeReply()


def services(peers: ConnectionPool, addresses: Sequence[str]) -> ServiceFailover:
    return ServiceFailover(peers, lambda: addresses, random=SeededRandom(0))


async def avoided(found: ServiceFailover, addresses: Sequence[str], address: str, wanted: bool) -> None:
    while (address not in {found.choose(addresses, attempt) for attempt in range(len(addresses))}) != wanted:
        await asyncio.sleep(0.01)


async def test_a_service_that_hangs_is_given_up_and_one_that_is_slow_is_not() -> None:
    async with Hanging() as hangs, Served() as (server, peers, works):
        server.serve(STAT, slow)
        addresses = (hangs, works)
        found = services(peers, addresses)
        lost = (await found.connect(hangs, 60)).call(STAT, pb.StatRequest(), timeout_s=60)
        answer = (await found.connect(works, 60)).call(STAT, pb.StatRequest(), timeout_s=60)
        with pytest.raises(ConnectionLost, match="has not answered a ping"):
            await lost
        await avoided(found, addresses, hangs, True)
        assert await answer == pb.InodeReply()
        assert {found.choose(addresses, attempt) for attempt in range(4)} == {works}
        await found.close()


@pytest.mark.slow
async def test_the_only_one_that_is_left_is_waited_for() -> None:
    async with Hanging() as hangs:
        peers = ConnectionPool(RealNet(), identity())
        nobody = "127.0.0.1:1"
        for addresses in [(hangs,), (hangs, nobody)]:
            found = services(peers, addresses)
            for address in addresses[1:]:
                with pytest.raises(Unavailable):
                    await found.connect(address, 60)
                found.record_failure(address)
            call = (await found.connect(hangs, 60)).call(STAT, pb.StatRequest(), timeout_s=60)
            await asyncio.sleep(1.5)
            assert not call.done()
            await found.close()
        await peers.close()


async def test_one_that_died_is_avoided_until_it_is_back() -> None:
    async with Served() as (one, peers, first), Served() as (other, _, second):
        addresses = (first, second)
        servers = {first: one, second: other}
        found = services(peers, addresses)
        home = found.choose(addresses, 0)
        (away,) = {first, second} - {home}
        assert [found.choose(addresses, attempt) for attempt in range(4)] == [home, away, home, away]
        await found.connect(home, 60)
        await servers[home].stop(1)
        found.record_failure(home)
        await avoided(found, addresses, home, True)
        assert found.choose(addresses, 0) == away
        again = Served()
        host, port = home.rsplit(":", 1)
        await again.server.start(host, int(port))
        await avoided(found, addresses, home, False)
        assert found.choose(addresses, 0) == home
        await again.server.stop(1)
        await found.close()


async def test_one_that_has_left_the_cluster_is_forgotten() -> None:
    peers = ConnectionPool(RealNet(), identity())
    addresses = ["127.0.0.1:1", "127.0.0.1:2"]
    found = services(peers, addresses)
    found.record_failure("127.0.0.1:1")
    await avoided(found, addresses, "127.0.0.1:1", True)
    addresses[0] = "127.0.0.1:3"
    await avoided(found, ["127.0.0.1:1", "127.0.0.1:2"], "127.0.0.1:1", False)
    await found.close()
    await peers.close()


async def test_a_service_that_does_not_even_greet_is_waited_for_only_if_there_is_no_other() -> None:
    """Its machine may be gone without a word, so that nobody refuses the connection."""

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    mute = await asyncio.start_server(listen, "127.0.0.1", 0)
    address = f"127.0.0.1:{mute.sockets[0].getsockname()[1]}"
    peers = ConnectionPool(RealNet(), identity(), limits=Limits(connect_s=1.2))
    for addresses, why in [
        ((address, "127.0.0.1:1"), "no answer within 0.6 s"),
        ((address,), "HELLO within 1.2 s"),
    ]:
        with pytest.raises(Unavailable, match=why):
            await services(peers, addresses).connect(address, 60)
    await peers.close()
    mute.close()
