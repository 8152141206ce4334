"""A disk gets no more targets by moves than a process may report."""

import pytest
from threefs_manager.chains import move_executor
from threefs_manager.placement.plan import MAX_TARGETS_PER_DISK

from tests.harness.moving_nodes import LEASE_S, MovingNodes, run_moving
from threefs.ids import ChainId
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


def test_a_move_to_a_disk_whose_target_stays_after_all_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was planned for the place of that target, and waited for it for ever, as did all plans of others."""

    async def body(nodes: MovingNodes) -> None:
        await nodes.manager.set_min_replicas(pb.SetMinReplicasRequest(table_id=1, min_replicas=2))
        await nodes.manager.add_nodes(pb.AddNodesRequest(storage=[pb.PlannedNode(node_id=4)]))
        await nodes.join(4)
        nodes.living.discard(2)
        await nodes.until(lambda: any(len(chain.serving) == 1 for chain in nodes.routing.chains.values()))
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        await nodes.until(lambda: nodes.held()[1] == 1 and bool(stuck(nodes)))
        [chain_id] = stuck(nodes)
        monkeypatch.setattr(move_executor, "MAX_TARGETS_PER_DISK", 1)
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=False))
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=2, draining=True))
        await nodes.until(lambda: not stuck(nodes))
        await nodes.until(lambda: len(nodes.routing.chains[chain_id].members) == 2)
        assert len(nodes.routing.chains[chain_id].serving) == 2

    run_moving(body)


def stuck(nodes: MovingNodes) -> list[ChainId]:
    return [chain.chain_id for chain in nodes.routing.chains.values() if chain.leaving is not None]
