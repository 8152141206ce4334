"""Targets do not move to disks that they would fill, and are taken back from those that they have filled."""

from tests.harness.moving_nodes import LEASE_S, MovingNodes, run_moving
from threefs.routing import PublicState
from threefs.wire import manager_pb2 as pb

NEW_NODE = 4


async def add_new_node(nodes: MovingNodes) -> None:
    await nodes.manager.add_nodes(pb.AddNodesRequest(storage=[pb.PlannedNode(node_id=NEW_NODE)]))
    await nodes.join(NEW_NODE)


def is_filling(nodes: MovingNodes) -> bool:
    """Whether the new node is brought up to date."""
    targets = {target.target_id for target in nodes.routing.targets.values() if target.node_id == NEW_NODE}
    states = {m.state for chain in nodes.routing.chains.values() for m in chain.members if m.target_id in targets}
    return PublicState.SYNCING in states


def test_a_disk_whose_new_target_returns_and_leaves_again_is_given_up() -> None:
    """A target without room looks now and then what was removed, more often than a move is given up."""

    async def body(nodes: MovingNodes) -> None:
        nodes.slow.add(NEW_NODE)
        await add_new_node(nodes)
        await nodes.manager.rebalance(pb.RebalanceRequest())
        await nodes.until(lambda: is_filling(nodes))
        nodes.full.add(NEW_NODE)
        returns = 0
        while nodes.held()[NEW_NODE]:
            nodes.left.add(NEW_NODE)
            for _ in range(round(10 * LEASE_S / 0.02)):
                await nodes.step()
            nodes.left.discard(NEW_NODE)
            await nodes.until(lambda: is_filling(nodes) or not nodes.held()[NEW_NODE])
            returns += 1
            assert returns < 10
        assert returns > 1

    run_moving(body)
