"""Moves that make progress are not taken back for a time in which the manager did not look at them."""

import pytest
from threefs_manager.chains.moves import Move

from tests.harness.moving_nodes import LEASE_S, MovingNodes, run_moving
from tests.harness.virtual_time import LoopClock
from threefs.errors import NoSpace
from threefs.ids import ChainId
from threefs.kv.memory import MemoryEngine
from threefs.kv.transaction import BufferedTransaction
from threefs.routing import PublicState
from threefs.wire import manager_pb2 as pb


class SmallEngine(MemoryEngine):
    """Takes nothing while its disk is full."""

    is_full = False

    async def commit(self, attempt: BufferedTransaction) -> None:
        if self.is_full and attempt.writes:
            raise NoSpace("the disk is full")
        await super().commit(attempt)


async def pass_leases(nodes: MovingNodes, count: int) -> None:
    for _ in range(round(count * LEASE_S / 0.02)):
        await nodes.step()


def moves_of(nodes: MovingNodes) -> dict[ChainId, Move]:
    controller = nodes.manager._controller
    assert controller is not None
    return dict(controller.move_executor.moves)


def is_filled(nodes: MovingNodes) -> bool:
    return any(nodes.routing.chains[c].state(move.added) is PublicState.SYNCING for c, move in moves_of(nodes).items())


async def begin(nodes: MovingNodes) -> dict[ChainId, Move]:
    """A new disk is filled, which takes its time."""
    await nodes.manager.add_nodes(pb.AddNodesRequest(storage=[pb.PlannedNode(node_id=4)]))
    await nodes.join(4)
    nodes.slow.add(4)
    nodes.resyncs_proceed = True
    await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
    await nodes.until(lambda: is_filled(nodes))
    await pass_leases(nodes, 40)
    return moves_of(nodes)


def test_because_it_was_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(nodes: MovingNodes) -> None:
        before = await begin(nodes)
        assert is_filled(nodes)
        running_s = LoopClock.monotonic
        monkeypatch.setattr(LoopClock, "monotonic", lambda clock: running_s(clock) + 31 * LEASE_S)
        await pass_leases(nodes, 3)
        assert moves_of(nodes) == before

    run_moving(body)


def test_because_its_disk_was_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its turns ended with what it saves of the stores of clients' chunks."""
    engine = SmallEngine()

    async def body(nodes: MovingNodes) -> None:
        before = await begin(nodes)
        seen = [pb.SeenStore(target_id=101, store_id=5, generation=1)]
        monkeypatch.setattr(nodes.manager._failure_detector.generations, "drain_unsaved", lambda: seen)
        engine.is_full = True
        nodes.living.discard(3)  # something is to be changed
        await pass_leases(nodes, 40)
        engine.is_full = False
        await pass_leases(nodes, 3)
        assert moves_of(nodes) == before

    run_moving(body, engine)
