"""Which traffic of a chain goes in which class."""

import asyncio
import contextlib
import socket
from pathlib import Path

from threefs_storage.scheduling.background_scheduler import Work, foreground_of

from tests.harness.chain_harness import OFFLINE, SERVING, SYNCING, Replica, TestChain, chain_of, until
from threefs.env.net import SocketStream
from threefs.errors import ChainChanged
from threefs.ids import ChunkId
from threefs.rpc.server_connection import ServerConnection
from threefs.rpc.traffic_class import DEFAULT_DSCP, TrafficClass

CHUNKS = [ChunkId(7, number) for number in range(20)]
_DATA, _REPLICATION, _BACKGROUND = TrafficClass.DATA, TrafficClass.REPLICATION, TrafficClass.BACKGROUND


def calls(replica: Replica) -> dict[TrafficClass, int]:
    """Those that it has begun to serve."""
    return {traffic: counters.calls for traffic, counters in replica.server.traffic.items() if counters.calls}


def priority(connection: ServerConnection) -> int:
    stream = connection._socket
    assert isinstance(stream, SocketStream)
    return stream._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY)


async def resync(chain: TestChain) -> None:
    """Replica 3 misses all chunks and gets them from replica 2."""
    chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
    for chunk in CHUNKS:
        await chain.write(bytes(50_000), chunk=chunk)
    chain.change((1, SERVING), (2, SERVING), (3, SYNCING))
    target = chain[3].target
    await until(lambda: target.synced_in_version == target.chain.version)


async def test_a_write_is_data_at_the_head_and_replication_behind_it(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await chain.write(b"content")
        assert [calls(replica) for replica in chain.replicas] == [{_DATA: 1}, {_REPLICATION: 1}, {_REPLICATION: 1}]


async def test_a_resync_has_a_marked_connection_of_its_own_and_counts_as_background(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await chain.write(b"content")  # also opens the connection for replication
        before = calls(chain[3])
        await resync(chain)
        replica = chain[3]
        assert {traffic: calls(replica)[traffic] for traffic in before} == before, "no other class carries any of it"
        assert replica.server.traffic[_BACKGROUND].received_bytes > len(CHUNKS) * 50_000
        connections = {connection.traffic: connection for connection in replica.server._connections}
        assert connections.keys() == {_REPLICATION, _BACKGROUND}
        for traffic, connection in connections.items():
            assert priority(connection) == DEFAULT_DSCP.mark(traffic).priority
        assert chain[2].storage.scheduler.counters[Work.RESYNC].pieces >= len(CHUNKS)
        assert replica.storage.scheduler.counters[Work.FOR_PEERS].bytes >= len(CHUNKS) * 50_000


async def test_a_write_to_a_syncing_replica_is_no_background_work(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await resync(chain)
        before = calls(chain[3])
        await chain.write(b"whole, as it is syncing", chunk=CHUNKS[0])
        after = calls(chain[3])
        assert after[_REPLICATION] == before.get(_REPLICATION, 0) + 1 and after[_BACKGROUND] == before[_BACKGROUND]


async def test_a_resync_ends_while_clients_are_served_all_the_time(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        for replica in chain.replicas:
            replica.yields = True
            await replica.restart()
        stop = asyncio.Event()

        async def read() -> None:
            while not stop.is_set():
                with contextlib.suppress(ChainChanged):
                    await chain.read(2, CHUNKS[0])
                await asyncio.sleep(0)

        await chain.write(b"content", chunk=CHUNKS[0])
        reading = [asyncio.create_task(read()) for _ in range(4)]
        try:
            await resync(chain)
            assert foreground_of(chain[2].server.traffic).last_call_s > 0
            assert chain[2].storage.scheduler.counters[Work.RESYNC].waited_seconds > 0, "it has yielded"
        finally:
            stop.set()
            await asyncio.gather(*reading)
