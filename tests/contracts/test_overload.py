"""More work than a service takes: callers wait, no connection ends, and nothing is lost."""

import asyncio
from pathlib import Path

import pytest

from tests.support.chain import chain_of
from tests.support.rpc import identity, run
from threefs.env.net import RealNet
from threefs.ids import ChunkId
from threefs.rpc.limits import Limits
from threefs.rpc.methods import WRITE
from threefs.rpc.peers import Peers
from threefs.wire import storage_pb2 as pb

MIB = 1 << 20


@pytest.mark.parametrize("replicas", [2, 3])
def test_a_head_with_more_on_its_way_than_its_successor_takes_loses_nothing(tmp_path: Path, replicas: int) -> None:
    """Many clients fill the head, whose connection to the next one has room for a quarter of that."""

    async def test() -> None:
        async with chain_of(tmp_path, replicas) as chain:
            lost: list[str] = []
            for replica in chain.replicas[1:]:
                replica.server.limits = Limits(inflight_bytes=4 * MIB)
            for replica in chain.replicas:
                replica.peers.on_lost = lambda _, error: lost.append(str(error))
            clients = [Peers(RealNet(), identity("c" * 32)) for _ in range(16)]

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

    run(test)


def test_a_write_that_the_service_refuses_for_load_is_tried_again(tmp_path: Path) -> None:
    """A sender that does not know the limit of its peer: a refusal has no effect, a later attempt succeeds."""

    async def test() -> None:
        async with chain_of(tmp_path, 2) as chain:
            await chain.write(b"x")
            head, tail = chain[1], chain[2]
            tail.server.limits = Limits(inflight_bytes=2 * MIB)  # after HELLO
            lost: list[str] = []
            head.peers.on_lost = lambda _, error: lost.append(str(error))
            clients = [Peers(RealNet(), identity("c" * 32)) for _ in range(8)]

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

    run(test)
