"""Targets do not move to disks that they would fill, and are taken back from those that they have filled."""

import asyncio

import pytest

from tests.harness.moving_nodes import LEASE_S, MovingNodes, run_moving
from threefs.ids import ChainId
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


def chains_on(nodes: MovingNodes, node: int) -> list[ChainId]:
    targets = nodes.routing.targets
    return [
        chain.chain_id
        for chain in nodes.routing.chains.values()
        if node in {targets[member.target_id].node_id for member in chain.members}
    ]


def test_a_large_chain_goes_to_a_disk_that_has_room_for_it() -> None:
    """Else a disk that drains keeps it for ever, if those that have no room for it carry the fewest targets."""

    async def body(nodes: MovingNodes) -> None:
        await nodes.manager.add_nodes(pb.AddNodesRequest(storage=[pb.PlannedNode(node_id=n) for n in (4, 5)]))
        await nodes.join(4)
        await nodes.join(5)
        await nodes.manager.rebalance(pb.RebalanceRequest())
        await nodes.until(lambda: sorted(nodes.held().values()) == [1, 1, 1, 1, 2])
        [drained] = [node for node, held in nodes.held().items() if held == 2]
        large, small = chains_on(nodes, drained)
        [roomy] = {n for n in nodes.held() if n != drained and small in chains_on(nodes, n)}
        nodes.used_bytes, nodes.large = 10 * GIB, {large: 100 * GIB}
        nodes.free_bytes = {node: 90 * GIB for node in nodes.held() if node != roomy}
        await nodes.step()
        await nodes.step()
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=drained, draining=True))
        await nodes.until(lambda: not nodes.held()[drained])
        assert large in chains_on(nodes, roomy)

    run_moving(body)


def test_a_small_chain_moves_beside_large_ones() -> None:
    """The disks have room for it, and not for a target as large as they are on the average."""

    async def body(nodes: MovingNodes) -> None:
        [large] = set(nodes.routing.chains) - set(chains_on(nodes, 1))
        nodes.used_bytes, nodes.large = 10 * GIB, {large: 300 * GIB}
        nodes.free_bytes = {2: 50 * GIB, 3: 50 * GIB}
        await nodes.step()
        await nodes.step()
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        await nodes.until(lambda: not nodes.held()[1])

    run_moving(body)


def test_a_node_whose_new_target_does_not_come_up_leaves_it_to_others() -> None:
    """It lives and tells of no failure: it may have no link with the source. Disks that drain do not wait for it."""

    async def body(nodes: MovingNodes) -> None:
        nodes.left.add(NEW_NODE)
        await add_new_node(nodes)
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        await nodes.until(lambda: not nodes.held()[1])
        assert not nodes.held()[NEW_NODE]

    run_moving(body)


def test_a_node_that_was_given_up_is_tried_again_if_no_other_has_room() -> None:
    async def body(nodes: MovingNodes) -> None:
        nodes.used_bytes, nodes.free_bytes = 10 * GIB, {2: GIB, 3: GIB}
        nodes.left.add(NEW_NODE)
        await add_new_node(nodes)
        await nodes.step()
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        controller = nodes.manager._controller
        assert controller is not None
        await nodes.until(lambda: bool(controller.move_executor._gave_up_at))
        nodes.left.discard(NEW_NODE)
        await nodes.until(lambda: not nodes.held()[1])

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


def test_a_new_target_that_makes_no_progress_leaves_its_move_to_others() -> None:
    """Its node lives and is reached, and nothing that is sent to it gets there whole: a path that drops large packets,
    for example. The disk that drains does not wait for it, and neither do writes to the chain."""

    async def body(nodes: MovingNodes) -> None:
        nodes.slow.add(NEW_NODE)
        await add_new_node(nodes)
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        await nodes.until(lambda: is_filling(nodes))
        await nodes.until(lambda: not nodes.held()[1])
        assert not nodes.held()[NEW_NODE]

    run_moving(body)


def test_a_new_target_that_only_takes_writes_of_clients_leaves_its_move_to_others() -> None:
    """Small changes get to it, and what it lacks does not."""

    async def body(nodes: MovingNodes) -> None:
        nodes.slow.add(NEW_NODE)
        await add_new_node(nodes)
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        await nodes.until(lambda: is_filling(nodes))
        deadline = asyncio.get_running_loop().time() + 60
        while nodes.held()[1]:
            nodes.used_bytes += 1
            await nodes.step()
            assert asyncio.get_running_loop().time() < deadline
        assert not nodes.held()[NEW_NODE]

    run_moving(body)


def test_disks_are_level_without_one_whose_new_target_does_not_come_up() -> None:
    """Else it would be filled again and again, for as long as the cluster runs. A disk that drains tries it again."""

    async def body(nodes: MovingNodes) -> None:
        nodes.slow.add(NEW_NODE)
        await add_new_node(nodes)
        await nodes.manager.rebalance(pb.RebalanceRequest())
        await nodes.until(lambda: is_filling(nodes))
        controller = nodes.manager._controller
        assert controller is not None
        await nodes.until(lambda: controller.move_executor.is_settled)
        nodes.slow.clear()
        await nodes.manager.rebalance(pb.RebalanceRequest())
        await nodes.until(lambda: bool(nodes.held()[NEW_NODE]) and controller.move_executor.is_settled)

    run_moving(body)


def test_a_new_target_that_makes_no_progress_leaves_a_chain_below_its_minimum_too() -> None:
    """Nothing needs it there, and the chain takes no writes before another one is in its place."""

    async def body(nodes: MovingNodes) -> None:
        await nodes.manager.set_min_replicas(pb.SetMinReplicasRequest(table_id=1, min_replicas=2))
        nodes.slow.add(NEW_NODE)
        await add_new_node(nodes)
        nodes.living.discard(1)
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        await nodes.until(lambda: is_filling(nodes))
        await nodes.until(lambda: not nodes.held()[1])
        assert not nodes.held()[NEW_NODE]

    run_moving(body)
