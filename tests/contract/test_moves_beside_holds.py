"""Moves of chains with a target that an administrator has taken out of service."""

import pytest

from tests.harness.moving_nodes import MovingNodes, run_moving
from threefs.routing import Chain, PublicState
from threefs.wire import manager_pb2 as pb


async def hold(nodes: MovingNodes, target: int, kind: "pb.Hold") -> None:
    await nodes.manager.hold_targets(pb.HoldTargetsRequest(targets=[target], hold=kind))


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
