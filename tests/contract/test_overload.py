"""More work than a service takes: callers wait, no connection ends, and nothing is lost."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from threefs_storage.chain import writes
from threefs_storage.engine.overlay import OverlayLimits

from tests.harness.chain_harness import chain_of, until
from tests.harness.rpc import identity
from threefs.env.net import Buffer, RealNet
from threefs.errors import Overloaded, ThreefsError
from threefs.ids import ChunkId
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.limits import Limits
from threefs.rpc.methods import FORWARD_VERSIONS, WRITE
from threefs.rpc.server import Server
from threefs.rpc.server_connection import Call
from threefs.wire import storage_pb2 as pb

MIB = 1 << 20


@pytest.mark.parametrize("replicas", [2, 3])
async def test_a_head_with_more_on_its_way_than_its_successor_takes_loses_nothing(
    tmp_path: Path, replicas: int
) -> None:
    """Many clients fill the head, whose connection to the next one has room for a quarter of that."""
    async with chain_of(tmp_path, replicas) as chain:
        lost: list[str] = []
        for replica in chain.replicas[1:]:
            replica.server.limits = Limits(inflight_bytes=4 * MIB)
        for replica in chain.replicas:
            replica.peers.on_lost = lambda _, error: lost.append(str(error))
        clients = [ConnectionPool(RealNet(), identity("c" * 32)) for _ in range(16)]

        async def write(number: int) -> None:
            content = bytes([number + 1]) * MIB
            row = chain.row(content, chunk=ChunkId(7, number), client=bytes([number]) * 16, seq=1)
            request = pb.WriteRequest(writes=[row])
            reply = await clients[number].call(chain[1].address, WRITE, request, timeout_s=30, payload=[content])
            assert not reply.results[0].code, reply.results[0].message

        await asyncio.gather(*(write(number) for number in range(16)))
        assert not lost
        for replica in chain.replicas:
            for number in range(16):
                _, content = await chain.read(replica.node, ChunkId(7, number))
                assert content == bytes([number + 1]) * MIB
        for client in clients:
            await client.close()


async def test_a_write_that_the_service_refuses_for_load_is_tried_again(tmp_path: Path) -> None:
    """A sender that does not know the limit of its peer: a refusal has no effect, a later attempt succeeds."""
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"x")
        head, tail = chain[1], chain[2]
        tail.server.limits = Limits(inflight_bytes=2 * MIB)  # after HELLO
        lost: list[str] = []
        head.peers.on_lost = lambda _, error: lost.append(str(error))
        clients = [ConnectionPool(RealNet(), identity("c" * 32)) for _ in range(8)]

        async def write(number: int) -> int:
            content = bytes([number + 1]) * MIB
            row = chain.row(content, chunk=ChunkId(8, number), client=bytes([number]) * 16, seq=1)
            request = pb.WriteRequest(writes=[row])
            reply = await clients[number].call(head.address, WRITE, request, timeout_s=30, payload=[content])
            return int(reply.results[0].code)

        assert await asyncio.gather(*(write(number) for number in range(8))) == [0] * 8
        assert not lost
        for client in clients:
            await client.close()


async def test_services_in_a_ring_do_not_wait_for_the_memory_of_one_another() -> None:
    """Each passes on to the next what it has taken, and its memory is full. What has come to its last service still
    finds room there; else all stood still until their attempts were out of time."""
    limits = Limits(process_bytes=16 * MIB, inflight_bytes=8 * MIB)
    servers = [Server(RealNet(), identity("c" * 32), limits=limits) for _ in range(3)]
    addresses = [await server.start("127.0.0.1", 0) for server in servers]
    peers = [ConnectionPool(RealNet(), identity("c" * 32)) for _ in servers]
    failures: set[type] = set()

    async def call(by: ConnectionPool, to: int, hops: int, payload: Buffer, forwarded: bool) -> None:
        request = pb.WriteRequest(writes=[pb.ChunkWrite(offset=hops)])
        while True:
            try:
                await by.call(
                    addresses[to % 3],
                    WRITE,
                    request,
                    timeout_s=20,
                    payload=[payload],
                    hops=hops if forwarded else None,
                )
                return
            except ThreefsError as error:
                failures.add(type(error))
                await asyncio.sleep(0.02)

    def pass_on(number: int) -> Callable[[Call[pb.WriteRequest, pb.WriteReply]], Awaitable[None]]:
        async def handle(taken: Call[pb.WriteRequest, pb.WriteReply]) -> None:
            hops = taken.request.writes[0].offset
            if hops:
                await call(peers[number], number + 1, hops - 1, taken.payload, True)
            await asyncio.sleep(0.005)
            taken.reply(pb.WriteReply())

        return handle

    for number, server in enumerate(servers):
        server.add(WRITE, pass_on(number))
    clients = [ConnectionPool(RealNet(), identity("c" * 32)) for _ in range(60)]
    await asyncio.gather(*(call(client, n, 2, bytes(MIB), False) for n, client in enumerate(clients)))
    assert failures <= {Overloaded}, "no attempt has run out of time"
    for each in (*clients, *peers):
        await each.close()
    for server in servers:
        assert server.pool.lent == 0 and server.calls_bytes == 0
        await server.stop(0.1)


async def test_changes_of_clients_leave_room_for_those_that_services_forward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound of changes in flight. Two services that are full of clients' changes, each with forwards for the other
    one, would wait for each other; and the longer a way is, the sooner its room ends."""
    monkeypatch.setattr(writes, "_MAX_IN_FLIGHT", 160)
    async with chain_of(tmp_path, 3, overlay=OverlayLimits()) as chain:
        chunks = [ChunkId(7, number) for number in range(8)]

        async def write_all() -> list[int]:
            rows = [chain.row(b"x", chunk=chunk) for chunk in chunks]
            reply = await chain.peers.call(
                chain[1].address, WRITE, pb.WriteRequest(writes=rows), timeout_s=20, payload=[b"x" * 8]
            )
            return [result.code for result in reply.results]

        async def stage_late(*args: Any, **more: Any) -> Any:
            """The changes have gone ahead when others come between: what is refused ahead comes in another way."""
            staged = await stage(*args, **more)
            await until(lambda: all(chain[3].pending(chunk) for chunk in chunks))
            await until(lambda: not any(each.calls for each in chain[3].server._connections))
            middle._in_flight, tail._in_flight = taken
            return staged

        assert not any(await write_all())
        _, middle, tail = (replica.storage._writes for replica in chain.replicas)
        stage = chain[1].target.engine.stage
        chain[1].target.engine.stage = stage_late  # type: ignore[method-assign]
        taken = 120, 120  # as many as clients may have
        assert not any(await write_all())
        middle._in_flight = tail._in_flight = 0
        taken = 120, 150  # and some that the tail has to forward
        assert not any(await write_all())
        with pytest.raises(Overloaded, match="150 writes of batches are in flight, 8 more exceed 150"):
            versions = pb.ForwardVersionsRequest(versions=[pb.ForwardStagedRequest()] * 8)
            await chain.peers.call(chain[3].address, FORWARD_VERSIONS, versions, timeout_s=5, hops=1)
        middle._in_flight = tail._in_flight = 0
