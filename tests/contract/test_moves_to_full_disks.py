"""Targets do not move to disks that they would fill, and are taken back from those that they have filled."""

import pytest

from tests.harness.moving_nodes import LEASE_S, MovingNodes, run_moving
from threefs.routing import PublicState
from threefs.wire import manager_pb2 as pb

NEW_NODE = 4
GIB = 1 << 30


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


@pytest.mark.parametrize(("free_gib", "moves"), [(11, False), (13, True)])
def test_a_move_leaves_a_disk_its_reserve_and_the_ballast(free_gib: int, moves: bool) -> None:
    """Else the copy could not be completed, and the disk of each other target on it would take no writes any more."""

    async def body(nodes: MovingNodes) -> None:
        nodes.capacity_bytes, nodes.used_bytes = 100 * GIB, 10 * GIB
        nodes.free_bytes = dict.fromkeys((1, 2, 3), free_gib * GIB)
        await nodes.step()
        await nodes.step()
        planned = await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        assert bool(planned.moves) is moves

    run_moving(body)


def test_a_full_disk_carries_no_target_more_than_an_empty_one() -> None:
    """Of six targets on four disks the full one keeps one. With two its chains would take no writes for ever, beside a
    disk that has room."""

    async def body(nodes: MovingNodes) -> None:
        nodes.full.add(1)
        await nodes.step()
        await add_new_node(nodes)
        await nodes.step()
        await nodes.manager.rebalance(pb.RebalanceRequest())
        await nodes.until(lambda: nodes.held()[1] == 1)
        for _ in range(round(10 * LEASE_S / 0.02)):
            await nodes.step()
        assert nodes.held()[1] == 1 and sorted(nodes.held().values()) == [1, 1, 2, 2]

    run_moving(body)
