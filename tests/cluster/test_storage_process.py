"""Manager and three storage services as real processes: chunks through the chain."""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.harness.processes import Program, free_port
from threefs.checksums import crc32c
from threefs.cluster.chunk_client import ChunkClient
from threefs.cluster.routing_watcher import RoutingWatcher
from threefs.env.net import RealNet
from threefs.errors import ChainChanged
from threefs.ids import ChainId, ClientId, InodeId, TableId, TargetId
from threefs.layout import FileLayout
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.handshake import Identity
from threefs.rpc.methods import INIT, READ
from threefs.wire import manager_pb2 as mpb
from threefs.wire import storage_pb2 as pb

MIB = 1 << 20
INODE = InodeId(77)
ANSWER_S = 60.0  # of a process that may not run for seconds, on a busy machine
LAYOUT = FileLayout(chunk_bytes=MIB, table_id=TableId(1), stripe=2, table_offset=0, seed=5)


class Chain:
    """Three storage processes and their manager."""

    def __init__(self, directory: Path) -> None:
        self.manager = Program("threefs_manager", directory / "manager", port=free_port(), control_port=free_port())
        self.directory = directory
        self.storage: list[Program] = []

    def start(self) -> None:
        self.manager.start()
        asyncio.run(self._init())
        for node in (1, 2, 3):
            program = Program(
                "threefs_storage",
                self.directory / f"storage-{node}",
                node_id=node,
                manager=self.manager.addresses[0],
            )
            self.storage.append(program)
            program.launch()
        for program in self.storage:
            program.wait_ready()

    async def _init(self) -> None:
        peers = ConnectionPool(RealNet(), Identity("", os.urandom(16).hex()))
        plan = mpb.InitRequest(
            storage=[mpb.PlannedNode(node_id=n, domain=f"d{n}") for n in (1, 2, 3)], replicas=3, targets_per_disk=2
        )
        await peers.call(self.manager.address, INIT, plan, timeout_s=60)
        await peers.close()

    def end(self) -> None:
        for program in (*self.storage, self.manager):
            if program.process.poll() is None:
                program.stop()

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator["Client"]:
        peers = ConnectionPool(RealNet(), Identity("", os.urandom(16).hex()))
        cluster = RoutingWatcher(peers, [self.manager.address])
        await cluster.start(ANSWER_S)
        yield Client(peers, cluster)
        await cluster.close()
        await peers.close()

    async def all_serve(self) -> None:
        async with self.client() as client:
            await client.all_serve()


class Client:
    def __init__(self, peers: ConnectionPool, cluster: RoutingWatcher) -> None:
        self.peers = peers
        self.cluster = cluster
        self.chunks = ChunkClient(peers, cluster, ClientId(os.urandom(16)))

    async def all_serve(self) -> None:
        """Of each chain one serves first, then the others."""
        while not all(len(chain.serving) == 3 for chain in self.cluster.routing.chains.values()):
            await self.cluster.refresh(self.cluster.routing.version, 5)

    async def replicas(self, number: int, length: int = MIB) -> list[tuple[int, int, bytes]]:
        """(code, version, bytes) of a chunk at every target of its chain that answers."""
        chain = self.cluster.routing.chains[self.chunks.chain_of(LAYOUT, number)]
        return [await self._replica(target, chain.chain_id, number, length) for target in chain.serving]

    async def _replica(
        self, target: TargetId, chain_id: ChainId, number: int, length: int, timeout_s: float = 60
    ) -> tuple[int, int, bytes]:
        """A target makes a new chain version durable before it acts in it: until then it answers ChainChanged."""
        deadline = time.monotonic() + timeout_s
        while True:
            routing = self.cluster.routing
            into = memoryview(bytearray(length))
            request = pb.ReadRequest(
                target=[target],
                chain_version=[routing.chains[chain_id].version],
                inode=[INODE],
                index=[number],
                offset=[0],
                length=[length],
            )
            reply = await self.peers.call(
                routing.address_of(target), READ, request, timeout_s=ANSWER_S, sink=partial(_front, into)
            )
            data = bytes(into[: reply.length[0]])
            assert reply.checksum[0] == crc32c(data)
            if reply.code[0] != ChainChanged.code or time.monotonic() > deadline:
                return reply.code[0], reply.version[0], data
            await asyncio.sleep(0.05)


def _front(into: memoryview, reply: object, size: int) -> list[memoryview]:
    return [into[:size]]


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    chain = Chain(tmp_path)
    chain.start()
    asyncio.run(chain.all_serve())
    yield chain
    chain.end()


async def test_an_acknowledged_write_is_the_same_on_every_replica(chain: Chain) -> None:
    async with chain.client() as client:
        for number, length in enumerate((1, 4096, 5000, 70_000, MIB - 1, MIB)):
            data = os.urandom(length)
            applied = await client.chunks.write(LAYOUT, INODE, number, 0, data, timeout_s=60)
            assert (applied.version, applied.length) == (1, length)
            assert await client.replicas(number) == [(0, 1, data)] * 3
            await client.chunks.write(LAYOUT, INODE, number, length // 2, b"new", timeout_s=60)
            expected = bytearray(max(length, length // 2 + 3))
            expected[:length] = data
            expected[length // 2 : length // 2 + 3] = b"new"
            if len(expected) <= MIB:
                assert await client.replicas(number) == [(0, 2, bytes(expected))] * 3
        await client.chunks.truncate(LAYOUT, INODE, 5, 10, timeout_s=60)
        assert {len(data) for _, _, data in await client.replicas(5)} == {10}
        assert await client.chunks.last_chunk(LAYOUT, INODE, timeout_s=60) == (5, 10)
        await client.chunks.remove(LAYOUT, INODE, 5, timeout_s=60)
        assert {code for code, _, _ in await client.replicas(5)} == {52}
        assert await client.chunks.last_chunk(LAYOUT, INODE, timeout_s=60) == (4, MIB - 1)


async def test_everything_killed_and_started_again_has_what_was_acknowledged(chain: Chain) -> None:
    data = {number: os.urandom(10_000 + number) for number in range(20)}
    async with chain.client() as client:
        await asyncio.gather(
            *(client.chunks.write(LAYOUT, INODE, n, 0, part, timeout_s=60) for n, part in data.items())
        )
    for program in (*chain.storage, chain.manager):
        program.kill()
    chain.manager.start()
    for program in chain.storage:
        program.launch()
    for program in chain.storage:
        program.wait_ready()
    async with chain.client() as client:
        await client.all_serve()
        for number, part in data.items():
            assert await client.replicas(number) == [(0, 1, part)] * 3
            await client.chunks.write(LAYOUT, INODE, number, 0, part, timeout_s=60)


async def test_random_bytes_at_a_storage_port_do_no_harm(chain: Chain) -> None:
    host, port = chain.storage[0].address.rsplit(":", 1)
    for size in (1, 32, 5000, 100_000):
        with socket.create_connection((host, int(port)), timeout=60) as stream:
            try:
                stream.sendall(os.urandom(size))
            except OSError:
                continue
    async with chain.client() as client:
        await client.chunks.write(LAYOUT, INODE, 0, 0, b"still here", timeout_s=60)
        assert await client.replicas(0) == [(0, 1, b"still here")] * 3
