"""What the next target of the chain is sent."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.harness.chain_harness import (
    CHUNK,
    CLIENT,
    OFFLINE,
    SERVING,
    SYNCING,
    Gate,
    TestChain,
    cancelled,
    chain_of,
    target_of,
    until,
)
from threefs.errors import DeadlineExceeded
from threefs.ids import NodeId
from threefs.wire import storage_pb2 as pb


def forwarded(chain: TestChain, node: int) -> list[Any]:
    return chain[node].peers.writes()


async def test_a_serving_successor_is_sent_the_change_itself(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"x" * 1000)
        row = chain.row(b"yy", offset=5)
        await chain.send(row, b"yy")
        (_, sent) = forwarded(chain, 1)
        row.target, row.version = target_of(2), 2
        assert sent == row


@pytest.mark.parametrize("cold", [False, True])
async def test_what_is_not_at_hand_is_sent_whole_with_its_entries(tmp_path: Path, cold: bool) -> None:
    async with chain_of(tmp_path, 2) as chain:
        content = bytes(range(256)) * 1000
        await chain.write(content, client=b"o" * 16)
        await chain.give_up(1, chain.row(b"end", offset=len(content), seq=77), b"end")
        chain[1].disk.cold = cold
        await chain[1].restart()  # the change itself is not at hand any more
        await until(lambda: chain[2].committed() == 2)
        sent = forwarded(chain, 1)[-1]
        assert (sent.kind, sent.version, sent.length) == (pb.REPLACE, 2, len(content) + 3)
        assert (sent.identity.client, sent.identity.seq) == (CLIENT, 77)
        assert [entry.identity.client for entry in sent.entries] == [b"o" * 16], "its own is not yet a result"
        assert await chain.read(2) == (2, content + b"end")
        await until(lambda: chain[1].state() == chain[2].state())


async def test_a_removal_is_sent_whole_as_a_tombstone(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await chain.write(b"x")
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        chain.change((1, SERVING), (2, SERVING), (3, SYNCING))
        await chain.send(chain.row(kind=pb.REMOVE, chunk_bytes=0))
        committed = chain[3].record().committed
        assert committed is not None and committed.removed and committed.version == 2
        assert chain[3].state() == chain[1].state()


async def test_the_chain_version_sent_is_the_one_in_which_the_successor_was_looked_up(tmp_path: Path) -> None:
    """Reading the whole content takes time; a target of the old chain must not be asked in the name of the new one."""
    async with chain_of(tmp_path) as chain:
        chain.change((1, SERVING), (2, SYNCING), (3, OFFLINE))
        chain[1].disk.cold = True
        gate = chain[1].disk.hold_read = Gate()
        write = asyncio.create_task(chain.write(b"x" * 100_000))
        await gate.reached.wait()
        old = chain.version
        chain.change((1, SERVING), (3, SYNCING), (2, OFFLINE))
        gate.open.set()
        await write
        sent = [(w.target, w.chain_version) for w in forwarded(chain, 1)]
        assert sent == [(target_of(2), old), (target_of(3), chain.version)]


async def test_a_successor_without_an_address_is_waited_for(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        routing = chain.routing()
        node = dataclasses.replace(routing.nodes[NodeId(2)], address="")
        chain[1].cluster.routing = dataclasses.replace(routing, nodes={**routing.nodes, NodeId(2): node})
        with pytest.raises(DeadlineExceeded):
            await chain.write(b"x", seq=1, timeout_s=0.2)
        assert not chain[1].peers.sent
        chain[1].cluster.routing = routing
        assert (await chain.write(b"x", seq=1)).version == 1


async def test_content_in_a_buffer_comes_back_when_the_call_is_cancelled(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        chain.change((1, SERVING), (2, SYNCING), (3, OFFLINE))
        gate = chain[1].peers.before = Gate()
        write = asyncio.create_task(chain.write(b"x" * 100_000))
        await gate.reached.wait()
        assert chain[1].server.pool.lent == 2, "the payload, and the content to be sent"
        await cancelled(write)
        chain[1].peers.before = None
        gate.open.set()
        await chain.idle()
        await until(lambda: chain[2].committed(CHUNK) == 1)
