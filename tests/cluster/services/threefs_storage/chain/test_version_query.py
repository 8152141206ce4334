"""Asking the last target that writes reach (R1)."""

import asyncio
import dataclasses
from pathlib import Path

import pytest
from threefs_storage.chain.version_query import VersionQuery
from threefs_storage.peer_targets import PeerTargets

from tests.harness.chain_harness import (
    CHUNK,
    OFFLINE,
    SERVING,
    SYNCING,
    Gate,
    TestChain,
    chain_of,
    flip_record,
    target_of,
)
from threefs.env.clock import CLOCK
from threefs.errors import ChainChanged, NotServing, Unavailable
from threefs.ids import ChunkId, NodeId
from threefs.rpc.methods import INVENTORY


def asker(chain: TestChain, node: int) -> VersionQuery:
    replica = chain[node]
    return VersionQuery(PeerTargets(replica.peers, lambda: replica.cluster.routing), clock=CLOCK)


async def ask(chain: TestChain, node: int, chunk: ChunkId = CHUNK) -> int:
    return await asker(chain, node).committed_version(chain[node].target, chunk, CLOCK.monotonic() + 20)


async def test_the_tail_tells_what_it_has_committed(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await chain.write(b"a")
        await chain.write(b"b")
        assert await ask(chain, 1) == await ask(chain, 2) == 2
        assert await ask(chain, 1, ChunkId(9, 9)) == 0, "no such chunk"


async def test_r1_it_is_the_last_one_that_writes_reach(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        for state, last in ((SYNCING, 3), (OFFLINE, 2)):
            chain.change((1, SERVING), (2, SERVING), (3, state))
            await ask(chain, 1)
            assert chain[1].peers.sent[-1][1].target == target_of(last)  # type: ignore[attr-defined]


async def test_a_tail_of_another_chain_version_does_not_answer(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await chain.write(b"a")
        chain.change((1, SERVING), (2, SERVING), (3, SERVING), learned_by=[3])
        with pytest.raises(ChainChanged):
            await ask(chain, 1)
        chain.change((1, SERVING), (2, SERVING), (3, SERVING), learned_by=[1])
        with pytest.raises(ChainChanged):
            await ask(chain, 1)


async def test_a_chain_without_a_serving_target_has_no_tail(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 1) as chain:
        chain.change((1, OFFLINE))
        with pytest.raises((ChainChanged, NotServing)):
            await ask(chain, 1)


async def test_a_tail_whose_address_is_not_known_is_unavailable(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        routing = chain.routing()
        node = dataclasses.replace(routing.nodes[NodeId(2)], address="")
        chain[1].cluster.routing = dataclasses.replace(routing, nodes={**routing.nodes, NodeId(2): node})
        with pytest.raises(Unavailable, match="has not registered"):
            await ask(chain, 1)


async def test_a_tail_that_has_gone_is_unavailable(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain[2].stop()
        with pytest.raises(Unavailable):
            await asyncio.wait_for(ask(chain, 1), 20)


async def test_one_that_is_syncing_and_cannot_read_its_record_says_nothing(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"a")
        chain.change((1, SERVING), (2, OFFLINE))
        chain[1].peers.before = Gate(INVENTORY)
        chain.change((1, SERVING), (2, SYNCING))
        flip_record(chain[2])
        with pytest.raises(Unavailable, match="will be replaced"):
            await ask(chain, 1)
        assert not chain[2].target.damaged, "it is about to be replaced anyway"
