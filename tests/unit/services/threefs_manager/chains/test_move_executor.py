"""Moves from the plan to the last record, with nodes that follow at once."""

import pytest
from threefs_manager.chains import moves
from threefs_manager.chains.move_executor import MoveExecutor
from threefs_manager.chains.moves import Move
from threefs_manager.store.cluster_store import Writer

from tests.harness.interrupted_engine import InterruptedEngine
from tests.harness.moving_nodes import LEASE_S, MovingNodes, run_moving
from tests.harness.silent_engine import SilentEngine
from threefs.cluster.manager_records import MOVE
from threefs.ids import ChainId, TargetId
from threefs.kv.memory import MemoryEngine
from threefs.routing import Chain, PublicState
from threefs.wire import manager_pb2 as pb

SYNCING = PublicState.SYNCING
GIB = 1 << 30


async def add(nodes: MovingNodes, node: int) -> None:
    await nodes.manager.add_nodes(pb.AddNodesRequest(storage=[pb.PlannedNode(node_id=node)]))
    await nodes.join(node)


def chains_of(nodes: MovingNodes) -> list[Chain]:
    return list(nodes.routing.chains.values())


def target_of(nodes: MovingNodes, node: int) -> TargetId:
    """The newest target of that node; 0 if it has none."""
    return max((t.target_id for t in nodes.routing.targets.values() if t.node_id == node), default=TargetId(0))


def executor(nodes: MovingNodes) -> MoveExecutor:
    controller = nodes.manager._controller
    assert controller is not None
    return controller.move_executor


def idle(nodes: MovingNodes) -> bool:
    return not executor(nodes).moves and not executor(nodes).balancing


def test_a_new_node_gets_its_share() -> None:
    async def body(nodes: MovingNodes) -> None:
        await add(nodes, 4)
        dry = await nodes.manager.rebalance(pb.RebalanceRequest(dry_run=True))
        assert [move.added_node for move in dry.moves] == [4] and idle(nodes), "a dry run changes nothing"
        await nodes.manager.rebalance(pb.RebalanceRequest())
        await nodes.until(lambda: idle(nodes))
        assert sorted(nodes.held().values()) == [1, 1, 2, 2] and nodes.held()[4] == 1
        assert all(len(chain.members) == 2 for chain in nodes.routing.chains.values())

    run_moving(body)


def test_a_drained_node_loses_all_and_its_records_go() -> None:
    async def body(nodes: MovingNodes) -> None:
        before = [target.target_id for target in nodes.routing.targets.values() if target.node_id == 1]
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        await nodes.until(lambda: not nodes.held()[1] and idle(nodes))
        await nodes.until(lambda: not set(before) & nodes.routing.targets.keys())
        assert sum(nodes.held().values()) == 6

    run_moving(body)


def test_a_dead_node_is_drained_and_its_records_stay_until_it_answers() -> None:
    async def body(nodes: MovingNodes) -> None:
        nodes.living.discard(1)
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        await nodes.until(lambda: not nodes.held()[1] and idle(nodes))
        assert any(target.node_id == 1 for target in nodes.routing.targets.values())

    run_moving(body)


def test_no_target_moves_to_a_dead_node() -> None:
    async def body(nodes: MovingNodes) -> None:
        await add(nodes, 4)
        nodes.living.discard(4)
        detector = nodes.manager._failure_detector
        await nodes.until(lambda: not detector.is_alive(4, LEASE_S))
        assert not (await nodes.manager.rebalance(pb.RebalanceRequest(dry_run=True))).moves

    run_moving(body)


def test_a_disk_without_room_for_another_target_gets_none() -> None:
    """It would be filled, given up when it is full, and chosen again."""

    async def body(nodes: MovingNodes) -> None:
        nodes.used_bytes, nodes.free_bytes[3] = 10 * GIB, 9 * GIB
        await nodes.step()
        await nodes.step()
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        await nodes.until(lambda: nodes.held()[1] == 1)
        for _ in range(50):
            await nodes.step()
        assert nodes.held() == {1: 1, 2: 3, 3: 2}
        nodes.free_bytes[3] = 11 * GIB
        await nodes.until(lambda: not nodes.held()[1] and idle(nodes))
        assert nodes.held() == {1: 0, 2: 3, 3: 3}

    run_moving(body)


def test_a_move_needs_the_room_that_those_before_it_have_left() -> None:
    """Each would fit alone. Together they would fill the disk, and its other targets would leave their chains."""

    async def body(nodes: MovingNodes) -> None:
        nodes.used_bytes, nodes.free_bytes = 10 * GIB, {2: 9 * GIB, 3: 9 * GIB}
        nodes.slow.add(4)
        await add(nodes, 4)
        await nodes.step()
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        await nodes.until(lambda: nodes.held()[4] == 1)
        nodes.free_bytes[4] = 9 * GIB
        await nodes.step()
        await nodes.step()
        nodes.slow.clear()
        for _ in range(100):
            await nodes.step()
        assert nodes.held() == {1: 1, 2: 2, 3: 2, 4: 1}
        nodes.free_bytes[4] = 11 * GIB
        await nodes.until(lambda: not nodes.held()[1] and idle(nodes))

    run_moving(body)


def test_a_chain_that_fits_on_no_disk_holds_up_no_other_one() -> None:
    async def body(nodes: MovingNodes) -> None:
        of_first = [c for c in chains_of(nodes) if 1 in {nodes.routing.targets[m.target_id].node_id for m in c.members}]
        nodes.used_bytes, nodes.large = 10 * GIB, {of_first[0].chain_id: 100 * GIB}
        nodes.free_bytes = {2: 50 * GIB, 3: 50 * GIB}
        await nodes.step()
        await nodes.step()
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        await nodes.until(lambda: nodes.held()[1] == 1)
        for _ in range(50):
            await nodes.step()
        assert nodes.held()[1] == 1
        nodes.free_bytes.clear()
        await nodes.until(lambda: not nodes.held()[1] and idle(nodes))

    run_moving(body)


def test_a_disk_that_is_full_before_its_new_target_is_complete_is_given_up() -> None:
    async def body(nodes: MovingNodes) -> None:
        nodes.slow.add(4)
        await add(nodes, 4)
        await nodes.manager.rebalance(pb.RebalanceRequest())
        await nodes.until(lambda: any(chain.state(target_of(nodes, 4)) is SYNCING for chain in chains_of(nodes)))
        nodes.full.add(4)
        nodes.left.add(4)
        await nodes.until(lambda: not nodes.held()[4] and idle(nodes))
        assert all(len(chain.members) == len(chain.serving) == 2 for chain in chains_of(nodes))
        for known in (nodes.slow, nodes.full, nodes.left):
            known.clear()
        await nodes.manager.rebalance(pb.RebalanceRequest())
        await nodes.until(lambda: bool(nodes.held()[4]) and idle(nodes))

    run_moving(body)


def test_full_disks_lose_targets_to_a_new_one() -> None:
    async def body(nodes: MovingNodes) -> None:
        nodes.full |= {1, 2, 3}
        await nodes.step()
        await add(nodes, 4)
        await nodes.manager.rebalance(pb.RebalanceRequest())
        await nodes.until(lambda: idle(nodes))
        assert sorted(nodes.held().values()) == [1, 1, 2, 2] and nodes.held()[4] == 2

    run_moving(body)


def test_ids_of_targets_are_never_given_out_twice() -> None:
    async def body(nodes: MovingNodes) -> None:
        seen: set[int] = set(nodes.routing.targets)
        for node in (1, 2, 1):
            await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=node, draining=True))
            await nodes.until(lambda node=node: not nodes.held()[node] and idle(nodes))  # type: ignore[misc]
            fresh = {m.target_id for chain in nodes.routing.chains.values() for m in chain.members} - seen
            assert fresh and min(fresh) > max(seen)
            seen |= fresh
            await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=node, draining=False))

    run_moving(body)


def test_a_node_that_dies_for_good_while_it_is_filled_is_given_up() -> None:
    async def body(nodes: MovingNodes) -> None:
        await add(nodes, 4)
        await nodes.manager.rebalance(pb.RebalanceRequest())
        await nodes.until(lambda: nodes.held()[4] == 1)
        nodes.living.discard(4)
        await nodes.until(lambda: not nodes.held()[4] and idle(nodes))
        assert all(len(chain.members) == len(chain.serving) == 2 for chain in nodes.routing.chains.values())

    run_moving(body)


def test_moves_to_a_node_that_drains_are_taken_back() -> None:
    async def body(nodes: MovingNodes) -> None:
        await add(nodes, 4)
        await nodes.manager.rebalance(pb.RebalanceRequest())
        await nodes.until(lambda: bool(nodes.held()[4]))
        nodes.slow.add(4)
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=4, draining=True))
        await nodes.until(lambda: not nodes.held()[4] and idle(nodes))
        assert all(len(chain.members) == 2 for chain in nodes.routing.chains.values())

    run_moving(body)


def test_a_move_that_was_taken_back_while_its_step_was_stored_is_not_forgotten() -> None:
    async def body(nodes: MovingNodes) -> None:
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        controller = nodes.manager._controller
        assert controller is not None
        executor = controller.move_executor
        await nodes.until(lambda: any(move.added for move in executor.moves.values()))
        move = next(move for move in executor.moves.values() if move.added)
        back = Move(move.chain_id, removed=move.added)

        async def take_back(writer: Writer) -> None:
            writer.put_move(moves.to_wire(back))

        await executor._store.change(take_back)
        await executor._apply([move])
        assert executor.moves[move.chain_id] == back

    run_moving(body)


def test_an_answer_that_comes_late_tells_nothing_of_moves_that_were_stored_since() -> None:
    async def body(nodes: MovingNodes) -> None:
        before = nodes.routing
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        controller = nodes.manager._controller
        assert controller is not None
        executor = controller.move_executor
        await nodes.until(lambda: bool(executor.moves))
        executor.take_over({}, before, balancing=False)
        assert executor.moves

    run_moving(body)


def test_undrain_takes_back_what_does_not_serve_yet() -> None:
    async def body(nodes: MovingNodes) -> None:
        await add(nodes, 4)
        nodes.slow.add(4)
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        await nodes.until(lambda: bool(nodes.held()[4]))
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=False))
        await nodes.until(lambda: idle(nodes) and not nodes.held()[4])
        assert all(len(chain.members) == 2 for chain in nodes.routing.chains.values())
        assert nodes.held()[1] >= 1 and sum(nodes.held().values()) == 6

    run_moving(body)


async def _damage_moves(engine: MemoryEngine) -> int:
    tx = engine.begin()
    found = [key for key, _ in await tx.get_range(MOVE + b"|", MOVE + b"}")]
    for key in found:
        tx.set(key, b"\1damaged")
    await tx.commit()
    return len(found)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_move_that_cannot_be_read_is_planned_anew(restarted: bool) -> None:
    engine = MemoryEngine()

    async def body(nodes: MovingNodes) -> None:
        await add(nodes, 4)
        nodes.slow.add(4)
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        await nodes.until(lambda: bool(nodes.held()[4]))
        assert await _damage_moves(engine)
        nodes.slow.clear()
        if restarted:
            await executor(nodes).load()
            assert not executor(nodes).moves
        await nodes.until(lambda: not nodes.held()[1] and idle(nodes))
        assert all(len(chain.members) == len(chain.serving) == 2 for chain in nodes.routing.chains.values())
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=False))
        await nodes.manager.rebalance(pb.RebalanceRequest())
        await nodes.until(lambda: idle(nodes))

    run_moving(body, engine)


def test_a_chain_keeps_its_copies_while_one_leaves_by_a_move_that_cannot_be_read() -> None:
    """It has a copy more than it should have until then; no other one is in its place to leave."""
    engine = MemoryEngine()

    async def body(nodes: MovingNodes) -> None:
        await add(nodes, 4)
        nodes.stay_on = True
        await nodes.manager.rebalance(pb.RebalanceRequest())
        await nodes.until(lambda: any(chain.leaving is not None for chain in chains_of(nodes)))
        before = {chain.chain_id: set(chain.staying) for chain in chains_of(nodes) if chain.leaving is not None}
        await _damage_moves(engine)
        controller = nodes.manager._controller
        assert controller is not None
        await controller.move_executor.load()
        for _ in range(50):
            await nodes.step()
        nodes.stay_on = False
        await nodes.until(lambda: idle(nodes) and not any(chain.leaving is not None for chain in chains_of(nodes)))
        for chain_id, stayed in before.items():
            assert stayed <= {member.target_id for member in nodes.routing.chains[chain_id].members}

    run_moving(body, engine)


def test_disks_are_levelled_although_the_manager_ends_before_that_is_planned() -> None:
    """The next one hears of the new disk last. It does not conclude from the others that nothing is uneven."""

    async def body(nodes: MovingNodes) -> None:
        await add(nodes, 4)
        await nodes.step()
        await nodes.manager.rebalance(pb.RebalanceRequest())
        nodes.living.clear()
        await nodes.restart_manager()
        nodes.living |= {1, 2, 3}
        for _ in range(5):
            await nodes.step()
            assert executor(nodes).balancing
        nodes.living.add(4)
        await nodes.until(lambda: idle(nodes))
        assert nodes.held()[4] == 1

    run_moving(body)


def test_disks_are_levelled_without_one_that_is_dead() -> None:
    async def body(nodes: MovingNodes) -> None:
        await add(nodes, 4)
        await nodes.step()
        await nodes.manager.rebalance(pb.RebalanceRequest())
        nodes.living.clear()
        await nodes.restart_manager()
        nodes.living |= {1, 2, 3}
        await nodes.until(lambda: idle(nodes))
        assert nodes.held()[4] == 0

    run_moving(body)


# ---- a call that arrives while moves are stored


def test_a_rebalance_that_is_asked_for_while_moves_are_stored_is_not_forgotten() -> None:
    engine = InterruptedEngine()

    async def body(nodes: MovingNodes) -> None:
        async def join_and_level() -> None:
            await add(nodes, 4)
            await nodes.manager.rebalance(pb.RebalanceRequest())

        engine.interrupted_at, engine.meanwhile = MOVE, join_and_level
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        await nodes.until(lambda: not nodes.held()[1] and idle(nodes))
        assert engine.meanwhile is None and nodes.held() == {1: 0, 2: 2, 3: 2, 4: 2}

    run_moving(body, engine)


def test_no_move_is_stored_to_a_node_that_leaves_while_it_is_planned() -> None:
    engine = InterruptedEngine()

    async def body(nodes: MovingNodes) -> None:
        async def leaves() -> None:
            nodes.living.discard(4)
            await nodes.manager.remove_node(pb.RemoveNodeRequest(node_id=4))

        await add(nodes, 4)
        engine.interrupted_at, engine.meanwhile = MOVE, leaves
        await nodes.manager.rebalance(pb.RebalanceRequest())
        while not idle(nodes):
            await nodes.step()
            assert {target.node_id for target in nodes.routing.targets.values()} == {1, 2, 3}
        assert engine.meanwhile is None and nodes.held() == {1: 2, 2: 2, 3: 2}

    run_moving(body, engine)


def test_no_move_is_stored_to_a_node_that_is_drained_while_it_is_planned() -> None:
    engine = InterruptedEngine()

    async def body(nodes: MovingNodes) -> None:
        async def drains() -> None:
            await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=4, draining=True))

        await add(nodes, 4)
        engine.interrupted_at, engine.meanwhile = MOVE, drains
        await nodes.manager.rebalance(pb.RebalanceRequest())
        while not idle(nodes):
            await nodes.step()
            assert {target.node_id for target in nodes.routing.targets.values()} == {1, 2, 3}
        assert engine.meanwhile is None

    run_moving(body, engine)


def test_a_move_of_a_target_that_is_no_member_any_more_is_not_stored() -> None:
    async def body(nodes: MovingNodes) -> None:
        controller = nodes.manager._controller
        assert controller is not None
        executor = controller.move_executor
        gone = Move(ChainId(1), removed=TargetId(999))
        stored, _ = await executor._store.change(lambda writer: executor.store_plan([gone], writer))
        assert not stored

    run_moving(body)


# ---- a commit that is made and not answered: its transaction runs again, and finds nothing left to do


def test_moves_are_known_although_their_commit_was_not_answered() -> None:
    engine = SilentEngine()

    async def body(nodes: MovingNodes) -> None:
        await add(nodes, 4)
        engine.silent_about = MOVE
        await nodes.manager.rebalance(pb.RebalanceRequest())
        await nodes.until(lambda: idle(nodes))
        assert nodes.held()[4] == 1 and engine.silent_about is None

    run_moving(body, engine)


def test_a_futile_move_ends_although_the_commit_that_takes_it_back_was_not_answered() -> None:
    engine = SilentEngine()

    async def body(nodes: MovingNodes) -> None:
        await add(nodes, 4)
        nodes.slow.add(4)
        await nodes.manager.rebalance(pb.RebalanceRequest())
        await nodes.until(lambda: bool(nodes.held()[4]))
        engine.silent_about = MOVE
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=4, draining=True))
        await nodes.until(lambda: not nodes.held()[4] and idle(nodes))
        assert engine.silent_about is None

    run_moving(body, engine)


def test_undrain_takes_moves_back_although_its_commit_was_not_answered() -> None:
    engine = SilentEngine()

    async def body(nodes: MovingNodes) -> None:
        await add(nodes, 4)
        nodes.slow.add(4)
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        await nodes.until(lambda: bool(nodes.held()[4]))
        engine.silent_about = MOVE
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=False))
        assert engine.silent_about is None
        await nodes.until(lambda: not nodes.held()[4] and idle(nodes))

    run_moving(body, engine)


def test_fewer_replicas_take_moves_back_although_the_commit_was_not_answered() -> None:
    engine = SilentEngine()

    async def body(nodes: MovingNodes) -> None:
        nodes.slow.update((1, 2, 3))
        await nodes.manager.set_replicas(pb.SetReplicasRequest(table_id=1, replicas=3))
        await nodes.until(lambda: sum(nodes.held().values()) > 6)
        engine.silent_about = MOVE
        await nodes.manager.set_replicas(pb.SetReplicasRequest(table_id=1, replicas=2))
        assert engine.silent_about is None
        await nodes.until(lambda: sum(nodes.held().values()) == 6 and idle(nodes))

    run_moving(body, engine)


def test_the_next_primary_goes_on_with_the_moves() -> None:
    async def body(nodes: MovingNodes) -> None:
        await add(nodes, 4)
        nodes.slow.add(4)
        await nodes.manager.rebalance(pb.RebalanceRequest())
        await nodes.until(lambda: bool(executor(nodes).moves))
        before = dict(executor(nodes).moves)
        await nodes.restart_manager()
        assert before and executor(nodes).moves == before

    run_moving(body)
