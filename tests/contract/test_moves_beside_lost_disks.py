"""Moves go on although others wait for disks that may never come back."""

from tests.harness.moving_nodes import LEASE_S, MovingNodes, run_moving
from threefs.cluster.manager_records import MOVE
from threefs.ids import ChainId
from threefs.kv.memory import MemoryEngine
from threefs.routing import Chain, PublicState
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


def leaving(nodes: MovingNodes) -> list[Chain]:
    return [chain for chain in nodes.routing.chains.values() if chain.leaving is not None]


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


def test_a_disk_is_drained_although_a_chain_was_lost_while_it_moved() -> None:
    async def body(nodes: MovingNodes) -> None:
        await add_two_nodes(nodes)
        nodes.slow |= {4, 5}
        await drain(nodes, 1)
        await nodes.until(lambda: nodes.held()[4] + nodes.held()[5] == 2)
        nodes.living -= {1, 2}
        await pass_leases(nodes, 3)
        nodes.slow.clear()
        await nodes.until(lambda: nodes.held()[1] == 1)
        await drain(nodes, 2)
        await nodes.until(lambda: nodes.held()[2] == 1)

    run_moving(body)


async def drain_beside_a_dead_disk(nodes: MovingNodes) -> None:
    """Disk 1 is to lose its targets, which their chains need, because disk 2 is dead."""
    await nodes.manager.set_min_replicas(pb.SetMinReplicasRequest(table_id=1, min_replicas=2))
    await add_two_nodes(nodes)
    nodes.living.discard(2)
    await pass_leases(nodes, 3)
    await drain(nodes, 1)
    await nodes.until(lambda: bool(leaving(nodes)))


def test_two_disks_are_drained_of_which_the_one_dies_while_the_chain_needs_the_other() -> None:
    """The living target cannot leave before the dead one is replaced, and that one waits for the move to end."""

    async def body(nodes: MovingNodes) -> None:
        await drain_beside_a_dead_disk(nodes)
        await drain(nodes, 2)
        await nodes.until(lambda: not nodes.held()[1] and not nodes.held()[2])
        assert all(len(chain.members) == len(chain.serving) == 2 for chain in nodes.routing.chains.values())

    run_moving(body)


def test_a_disk_is_drained_although_the_resync_that_its_chain_waits_for_does_nothing() -> None:
    """It is waited for only while it proceeds."""

    async def body(nodes: MovingNodes) -> None:
        nodes.slow.add(2)
        nodes.resyncs_proceed = True
        await drain_beside_a_dead_disk(nodes)
        nodes.living.add(2)
        await pass_leases(nodes, 45)
        assert any(map(is_syncing, leaving(nodes))), "who returns keeps its copy"
        nodes.resyncs_proceed = False
        await nodes.until(lambda: not nodes.held()[1])

    run_moving(body)


def test_a_target_that_a_chain_needs_stays_although_the_move_that_takes_it_away_cannot_be_read() -> None:
    """Nothing was planned for the chain any more: neither it nor the dead disk ever lost its targets."""
    engine = MemoryEngine()

    async def body(nodes: MovingNodes) -> None:
        await drain_beside_a_dead_disk(nodes)
        tx = engine.begin()
        for key, _ in await tx.get_range(MOVE + b"|", MOVE + b"}"):
            tx.set(key, b"\1damaged")
        await tx.commit()
        await nodes.manager._controller.move_executor.load()  # type: ignore[union-attr]
        await drain(nodes, 2)
        await nodes.until(lambda: not nodes.held()[1] and not nodes.held()[2])

    run_moving(body, engine)


def test_the_last_copy_of_a_chain_is_copied_although_it_was_about_to_leave() -> None:
    async def body(nodes: MovingNodes) -> None:
        await add_two_nodes(nodes)
        nodes.stay_on = True
        await drain(nodes, 1)
        await nodes.until(lambda: bool(leaving(nodes)))
        gone = {nodes.routing.targets[target].node_id for target in leaving(nodes)[0].staying}
        nodes.living -= gone
        await pass_leases(nodes, 3)
        nodes.stay_on = False
        for node in gone:
            await drain(nodes, node)
        await nodes.until(lambda: not any(nodes.held()[node] for node in (1, *gone)))

    run_moving(body)


def test_a_target_that_was_to_leave_stays_if_more_copies_are_wanted_in_that_moment() -> None:
    """The move that takes it away would never end, and so neither would a drain of its disk."""

    async def body(nodes: MovingNodes) -> None:
        await add_two_nodes(nodes)
        nodes.stay_on = True
        await nodes.manager.set_replicas(pb.SetReplicasRequest(table_id=1, replicas=1))
        await nodes.until(lambda: bool(leaving(nodes)))
        await nodes.manager.set_replicas(pb.SetReplicasRequest(table_id=1, replicas=2))
        await nodes.manager.set_min_replicas(pb.SetMinReplicasRequest(table_id=1, min_replicas=2))
        needed = leaving(nodes)[0].leaving
        assert needed is not None
        drained = nodes.routing.targets[needed].node_id
        nodes.stay_on = False
        await drain(nodes, drained)
        await nodes.until(lambda: not nodes.held()[drained])

    run_moving(body)


def test_a_new_target_that_dies_as_the_old_one_leaves_keeps_its_copy() -> None:
    """It has served, and the chain would lose a copy if its move were taken back now."""

    async def body(nodes: MovingNodes) -> None:
        await add_two_nodes(nodes)
        nodes.stay_on = True
        await drain(nodes, 1)
        await nodes.until(lambda: bool(leaving(nodes)))
        chain = leaving(nodes)[0]
        added = chain.members[-1].target_id
        nodes.stay_on = False
        nodes.left.add(nodes.routing.targets[added].node_id)
        await nodes.until(lambda: nodes.routing.chains[chain.chain_id].leaving is None)
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=False))
        await pass_leases(nodes, 3)
        assert nodes.routing.chains[chain.chain_id].state(added) is not None

    run_moving(body)


def test_a_new_target_waits_its_turn_behind_the_resync_of_another_one() -> None:
    """It counted as one that does not come up: it was given up, and so was the next one. Each began the resync anew."""

    async def body(nodes: MovingNodes) -> None:
        await add_two_nodes(nodes)
        nodes.slow.add(2)
        nodes.resyncs_proceed = True
        nodes.living.discard(2)
        await pass_leases(nodes, 3)
        nodes.living.add(2)
        shared = next(chain_id for chain_id in nodes.routing.chains if nodes_of(nodes, chain_id) == {1, 2})
        await nodes.until(lambda: is_syncing(nodes.routing.chains[shared]))
        await drain(nodes, 1)
        await nodes.until(lambda: len(nodes.routing.chains[shared].members) == 3)
        before = nodes.routing.chains[shared]
        await pass_leases(nodes, 45)
        assert nodes.routing.chains[shared] == before
        await drain(nodes, 3)
        await nodes.until(lambda: nodes.held()[3] == 1)  # it holds up no move of another chain
        nodes.slow.clear()
        await nodes.until(lambda: not nodes.held()[1])
        assert nodes.routing.chains[shared].state(before.members[-1].target_id) is PublicState.SERVING

    run_moving(body)


def test_a_new_target_that_is_taken_out_of_service_while_it_waits_holds_up_no_plan() -> None:
    """Its chain is served again, and the target is not filled as long as it is held. The other moves went on, and
    nothing was planned any more: no disk that drains after that lost anything."""

    async def body(nodes: MovingNodes) -> None:
        await add_two_nodes(nodes)
        nodes.slow |= {4, 5}
        nodes.resyncs_proceed = True
        await drain(nodes, 1)
        await nodes.until(lambda: any({1, 2} < nodes_of(nodes, chain_id) for chain_id in nodes.routing.chains))
        shared = next(chain_id for chain_id in nodes.routing.chains if {1, 2} < nodes_of(nodes, chain_id))
        added = max(member.target_id for member in nodes.routing.chains[shared].members)
        nodes.living -= {1, 2}
        await nodes.until(lambda: nodes.routing.chains[shared].state(added) is PublicState.WAITING)
        hold = pb.HoldTargetsRequest(targets=[added], hold=pb.HOLD_OFFLINE)
        await nodes.manager.hold_targets(hold)
        nodes.living |= {1, 2}
        await nodes.until(lambda: len(nodes.routing.chains[shared].serving) == 2)
        assert nodes.routing.chains[shared].state(added) is PublicState.WAITING
        nodes.slow.clear()
        await drain(nodes, 3)
        await nodes.until(lambda: not nodes.held()[1] and not nodes.held()[3])

    run_moving(body)


def nodes_of(nodes: MovingNodes, chain_id: ChainId) -> set[int]:
    return {nodes.routing.targets[member.target_id].node_id for member in nodes.routing.chains[chain_id].members}


def is_syncing(chain: Chain) -> bool:
    return any(member.state is PublicState.SYNCING for member in chain.members)
