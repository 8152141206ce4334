"""A disk gets no more targets by moves than a process may report."""

from threefs_manager.placement.plan import MAX_TARGETS_PER_DISK

from tests.harness.moving_nodes import LEASE_S, MovingNodes, run_moving
from threefs.wire import manager_pb2 as pb

MANY = 66  # on each of three disks, beside the two of the first table: two disks cannot carry all


async def with_many_targets(nodes: MovingNodes) -> None:
    request = pb.CreateTableRequest(replicas=2, targets_per_disk=MANY, call_id=bytes(16))
    await nodes.manager.create_table(request)
    await nodes.until(lambda: all(chain.serving for chain in nodes.routing.chains.values()))


def test_a_drain_does_not_crowd_the_other_disks() -> None:
    """The heartbeats of a node with more targets are refused: all its chains would go on without it."""

    async def body(nodes: MovingNodes) -> None:
        await with_many_targets(nodes)
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        most = MAX_TARGETS_PER_DISK
        for _ in range(1200):
            await nodes.step()
            assert max(nodes.held().values()) <= most, nodes.held()
        assert nodes.held()[2] == nodes.held()[3] == most
        detector = nodes.manager._failure_detector
        assert all(detector.is_alive(node, LEASE_S) for node in (1, 2, 3))

    run_moving(body)
