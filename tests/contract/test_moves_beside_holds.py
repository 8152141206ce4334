"""Moves of chains with a target that an administrator has taken out of service, and moves to its disk."""

import pytest
from threefs_manager.chains.move_executor import MoveExecutor

from tests.harness.interrupted_engine import InterruptedEngine
from tests.harness.moving_nodes import MovingNodes, run_moving
from threefs.cluster.manager_records import TARGET
from threefs.ids import TargetId
from threefs.routing import Chain, PublicState
from threefs.wire import manager_pb2 as pb


async def hold(nodes: MovingNodes, target: int, kind: "pb.Hold") -> None:
    await nodes.manager.hold_targets(pb.HoldTargetsRequest(targets=[target], hold=kind))


def executor(nodes: MovingNodes) -> MoveExecutor:
    controller = nodes.manager._controller
    assert controller is not None
    return controller.move_executor


async def with_fourth_node(nodes: MovingNodes) -> TargetId:
    """Node 4 has its share; returns the one target of it."""
    await nodes.manager.add_nodes(pb.AddNodesRequest(storage=[pb.PlannedNode(node_id=4)]))
    await nodes.join(4)
    await nodes.manager.rebalance(pb.RebalanceRequest())
    await nodes.until(lambda: not executor(nodes).moves and not executor(nodes).balancing)
    (target,) = (t.target_id for t in nodes.routing.targets.values() if t.node_id == 4)
    return target


def test_a_held_target_leaves_before_one_that_a_move_takes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hold was accepted, as enough others served. Then one of these left for good, and the held one stayed in
    service for ever."""

    async def body(nodes: MovingNodes) -> None:
        def whole() -> list[Chain]:
            return [chain for chain in nodes.routing.chains.values() if len(chain.serving) == 3]

        await nodes.manager.set_min_replicas(pb.SetMinReplicasRequest(table_id=1, min_replicas=2))
        await nodes.manager.add_nodes(pb.AddNodesRequest(storage=[pb.PlannedNode(node_id=4)]))
        await nodes.join(4)
        with monkeypatch.context() as damaged:  # nobody leaves as long as it may have the only good copy
            damaged.setattr(nodes.manager._failure_detector, "reports_sound", lambda target: False)
            await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
            await nodes.until(lambda: bool(whole()))
            (chain,) = whole()
            held = next(t for t in chain.serving if nodes.routing.targets[t].node_id not in (1, 4))
            await hold(nodes, held, pb.HOLD_OFFLINE)
        await nodes.until(lambda: nodes.routing.chains[chain.chain_id].state(held) is PublicState.OFFLINE)
        assert len(nodes.routing.chains[chain.chain_id].serving) == 2
        await hold(nodes, held, pb.HOLD_NONE)
        await nodes.until(lambda: not nodes.held()[1])

    run_moving(body)


def test_a_disk_that_is_out_of_service_gets_no_target() -> None:
    """Whoever was told that nobody uses it any more took it out, with the only copy of what had moved to it."""

    async def body(nodes: MovingNodes) -> None:
        held = await with_fourth_node(nodes)
        await hold(nodes, held, pb.HOLD_OFFLINE)
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        await nodes.until(lambda: not nodes.held()[1] and not executor(nodes).moves)
        assert nodes.held() == {1: 0, 2: 3, 3: 2, 4: 1}
        await hold(nodes, held, pb.HOLD_NONE)
        await nodes.manager.rebalance(pb.RebalanceRequest())
        await nodes.until(lambda: nodes.held()[4] == 2)

    run_moving(body)


def test_a_rebalance_ends_only_when_disks_that_are_out_of_service_are_back() -> None:
    """It ended without the disk, which then stayed nearly empty, and nothing said so."""

    async def body(nodes: MovingNodes) -> None:
        held = await with_fourth_node(nodes)
        await hold(nodes, held, pb.HOLD_OFFLINE)
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        await nodes.manager.rebalance(pb.RebalanceRequest())
        await nodes.until(lambda: not nodes.held()[1] and not executor(nodes).moves)
        for _ in range(100):
            await nodes.step()
        await hold(nodes, held, pb.HOLD_NONE)
        await nodes.until(lambda: nodes.held()[4] == 2)

    run_moving(body)


def test_a_rebalance_that_waits_for_a_disk_says_so_and_that_nothing_else_follows() -> None:
    """It said for ever that more moves are being planned, and `threefs moves --watch` did not end."""

    async def body(nodes: MovingNodes) -> None:
        async def told() -> tuple[bool, list[int]]:
            status = await nodes.manager.get_status(pb.GetStatusRequest())
            return status.more_moves, list(status.rebalance_awaits)

        held = await with_fourth_node(nodes)
        assert await told() == (False, [])
        await hold(nodes, held, pb.HOLD_OFFLINE)
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        await nodes.manager.rebalance(pb.RebalanceRequest())
        assert await told() == (True, []), "no plan has found yet that only this is left"
        await nodes.until(lambda: not nodes.held()[1] and bool(executor(nodes).awaited_nodes))
        assert await told() == (False, [4])
        await hold(nodes, held, pb.HOLD_NONE)
        assert await told() == (True, [])
        await nodes.until(lambda: nodes.held()[4] == 2 and not executor(nodes).balancing)
        assert await told() == (False, [])

    run_moving(body)


def test_a_move_to_a_disk_that_goes_out_of_service_does_not_begin() -> None:
    engine = InterruptedEngine()

    async def body(nodes: MovingNodes) -> None:
        held = await with_fourth_node(nodes)
        engine.interrupted_at, engine.meanwhile = TARGET, lambda: hold(nodes, held, pb.HOLD_OFFLINE)
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        for _ in range(200):
            await nodes.step()
            assert nodes.held()[4] == 1
        assert engine.meanwhile is None

    run_moving(body, engine)


def test_a_new_table_has_no_chain_on_a_disk_that_is_out_of_service() -> None:
    async def body(nodes: MovingNodes) -> None:
        held = await with_fourth_node(nodes)
        await hold(nodes, held, pb.HOLD_OFFLINE)
        reply = await nodes.manager.create_table(pb.CreateTableRequest(call_id=bytes(16), replicas=2))
        members = [m for c in reply.table.chains for m in nodes.routing.chains[c].members]  # type: ignore[index]
        assert {nodes.routing.targets[member.target_id].node_id for member in members} == {1, 2, 3}
        await nodes.manager.set_replicas(pb.SetReplicasRequest(table_id=1, replicas=4))

    run_moving(body)
