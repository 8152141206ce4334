"""Calls by the number of a target."""

import asyncio
import dataclasses
from pathlib import Path

import pytest
from threefs_storage.peer_targets import PeerTargets

from tests.harness.chain_harness import chain_of, target_of
from threefs.errors import Unavailable
from threefs.ids import NodeId
from threefs.rpc.methods import SPACE_INFO
from threefs.wire import storage_pb2 as pb


async def test_a_call_reaches_the_process_of_the_target(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        peers = PeerTargets(chain[1].peers, lambda: chain[1].cluster.routing)
        reply = await peers.call(target_of(2), SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=20)
        assert [space.target for space in reply.targets] == [target_of(2)]


async def test_a_process_without_an_address_is_unavailable(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        routing = chain.routing()
        silent = dataclasses.replace(routing.nodes[NodeId(2)], address="")
        unregistered = dataclasses.replace(routing, nodes={**routing.nodes, NodeId(2): silent})
        peers = PeerTargets(chain[1].peers, lambda: unregistered)
        with pytest.raises(Unavailable, match="target 201 of node 2 has not registered"):
            await peers.call(target_of(2), SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=20)


async def test_a_target_of_a_removed_node_is_unavailable(tmp_path: Path) -> None:
    """Work that began before its node was removed ends like any other that does not reach its peer."""
    async with chain_of(tmp_path, 2) as chain:
        routing = chain.routing()
        peers = PeerTargets(chain[1].peers, lambda: dataclasses.replace(routing, nodes={}, targets={}))
        with pytest.raises(Unavailable, match="target 201 has not registered"):
            await peers.call(target_of(2), SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=20)
        assert not peers.address_of(target_of(2))
        assert await peers.observe(target_of(2), asyncio.sleep(0, "answer")) == "answer"
