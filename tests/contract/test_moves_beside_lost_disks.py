"""Moves go on although others wait for disks that may never come back."""

from tests.harness.moving_nodes import LEASE_S, MovingNodes, run_moving
from threefs.wire import manager_pb2 as pb


async def add_two_nodes(nodes: MovingNodes) -> None:
    await nodes.manager.add_nodes(pb.AddNodesRequest(storage=[pb.PlannedNode(node_id=n) for n in (4, 5)]))
    await nodes.join(4)
    await nodes.join(5)


async def drain(nodes: MovingNodes, node: int) -> None:
    await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=node, draining=True))


async def pass_leases(nodes: MovingNodes, count: int) -> None:
    for _ in range(round(count * LEASE_S / 0.02)):
        await nodes.step()


def test_a_disk_is_drained_although_a_chain_of_another_one_is_lost() -> None:
    """The move of the lost chain waits, perhaps for ever. Other chains need their copies now."""

    async def body(nodes: MovingNodes) -> None:
        await add_two_nodes(nodes)
        nodes.living -= {1, 2}
        await pass_leases(nodes, 3)
        await drain(nodes, 1)
        await nodes.until(lambda: nodes.held()[1] == 1)
        await drain(nodes, 2)
        await nodes.until(lambda: nodes.held()[2] == 1)
        [lost] = [chain for chain in nodes.routing.chains.values() if not chain.serving]
        assert {nodes.routing.targets[member.target_id].node_id for member in lost.members} == {1, 2}
        nodes.living |= {1, 2}
        await nodes.until(lambda: not nodes.held()[1] and not nodes.held()[2])

    run_moving(body)
