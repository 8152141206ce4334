"""Real processes in network namespaces: only a link between two storage processes fails, and writes go on."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import threefs_client

from tests.chaos.cluster import KEY, Cluster, cluster_in
from tests.chaos.namespaces import Network
from threefs.rpc import methods
from threefs.wire import manager_pb2 as pb

_FILES = 24  # so that every chain has one
_WELL_S = 90.0


def _write_all(cluster: Cluster, content: bytes) -> None:
    """Raises if a write gets no answer within the timeout of a client."""
    with threefs_client.connect(cluster.address, token=KEY, timeout_s=60.0) as fs:
        for number in range(_FILES):
            fs.write_file(f"/{number}", content)


def _check_all(cluster: Cluster, content: bytes) -> None:
    with threefs_client.connect(cluster.address, token=KEY, timeout_s=60.0) as fs:
        for number in range(_FILES):
            assert fs.read_file(f"/{number}") == content


def _status(cluster: Cluster) -> pb.GetStatusReply:
    return asyncio.run(_ask_status(cluster))


async def _ask_status(cluster: Cluster) -> pb.GetStatusReply:
    return await cluster.ask(methods.GET_STATUS, pb.GetStatusRequest())


async def _until_all_alive(cluster: Cluster) -> None:
    """Each of them still reaches the manager, if its heartbeats may be late on a busy machine."""
    async with asyncio.timeout(_WELL_S):
        while not all(node.alive for node in (await _ask_status(cluster)).nodes):
            await asyncio.sleep(0.1)


def _neighbours(cluster: Cluster) -> tuple[str, str]:
    """The first two members of a chain: a slow start may have changed the order that the plan had."""
    routing = asyncio.run(cluster.ask(methods.GET_ROUTING, pb.GetRoutingRequest())).routing
    node_of = {target.target_id: target.node_id for target in routing.targets}
    first, second = (node_of[member.target_id] for member in routing.chains[0].members[:2])
    return cluster.storage[first - 1], cluster.storage[second - 1]


def _fail(network: Network, one: str, other: str, *, both_ways: bool) -> None:
    network.block(one, other)
    if both_ways:
        network.block(other, one)


def _mend(network: Network, one: str, other: str, *, both_ways: bool) -> None:
    network.unblock(one, other)
    if both_ways:
        network.unblock(other, one)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("both_ways", [True, False])
def test_writes_go_on_while_a_link_between_two_storage_processes_is_down(tmp_path: Path, both_ways: bool) -> None:
    with cluster_in(tmp_path) as cluster:
        network: Any = cluster.network
        if network is None:
            pytest.skip("network namespaces cannot be made here")
        asyncio.run(cluster.start())
        assert not asyncio.run(cluster.healthy(_WELL_S))
        one, other = _neighbours(cluster)
        _write_all(cluster, b"before" * 20_000)
        _fail(network, one, other, both_ways=both_ways)
        _write_all(cluster, b"during" * 20_000)
        _check_all(cluster, b"during" * 20_000)
        assert _status(cluster).link_removals
        asyncio.run(_until_all_alive(cluster))
        _mend(network, one, other, both_ways=both_ways)
        assert not asyncio.run(cluster.healthy(_WELL_S))
        _check_all(cluster, b"during" * 20_000)
        _write_all(cluster, b"after" * 20_000)
        _check_all(cluster, b"after" * 20_000)
        assert not cluster.end()
