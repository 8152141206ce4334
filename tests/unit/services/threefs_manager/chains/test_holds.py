"""Targets that an administrator takes out of service, with nodes that know nothing of it: they lose their lease."""

import asyncio
import dataclasses

import pytest
from threefs_manager.chains.holds import held_out, plan, stands_in
from threefs_manager.chains.transitions import mark_leaving

from tests.harness.beating_nodes import Bench, run
from tests.harness.chain_harness import until
from tests.harness.moving_nodes import LEASE_S, MovingNodes, run_moving
from tests.harness.silent_engine import SilentEngine
from tests.harness.virtual_time import LOOP_CLOCK
from threefs.cluster.manager_records import TARGET
from threefs.errors import InvalidArgument, NotFound
from threefs.ids import ChainId, NodeId, TableId, TargetId
from threefs.routing import EMPTY, Chain, ChainMember, Hold, Node, NodeKind, PublicState, Routing, Target
from threefs.wire import manager_pb2 as pb

SERVING, SYNCING, WAITING = PublicState.SERVING, PublicState.SYNCING, PublicState.WAITING
LASTSRV, OFFLINE = PublicState.LASTSRV, PublicState.OFFLINE
ONE, TWO, THREE = TargetId(101), TargetId(201), TargetId(301)


def routing(*states: PublicState, minimum: int = 2, **holds: Hold) -> Routing:
    """One chain of targets 101, 201, ...; `holds` by "t101"."""
    ids = [TargetId(100 * n + 1) for n, _ in enumerate(states, 1)]
    chain = Chain(ChainId(1), 7, tuple(map(ChainMember, ids, states)))
    held = {t: Target(t, NodeId(t // 100), ChainId(1), 5, holds.get(f"t{t}", Hold.NONE)) for t in ids}
    tables = {TableId(1): (ChainId(1),)}
    return Routing(1, "", EMPTY.nodes, held, {ChainId(1): chain}, tables, min_replicas={TableId(1): minimum})


def counts(found: list[pb.HeldChain]) -> list[tuple[int, int, int]]:
    return [(chain.serving, chain.needed, chain.members) for chain in found]


def test_what_a_write_needs_stays_unless_it_is_forced() -> None:
    whole = routing(SERVING, SERVING, SERVING)
    assert counts(plan(whole, [ONE], Hold.OFFLINE)) == [(2, 2, 3)]
    with pytest.raises(InvalidArgument, match="would have 1 of 3 copies in service, and a write needs 2"):
        plan(whole, [ONE, TWO], Hold.OFFLINE)
    assert counts(plan(whole, [ONE, TWO], Hold.FORCED)) == [(1, 2, 3)]
    with pytest.raises(InvalidArgument, match=r"its reads and writes would wait. .* more copies first"):
        plan(routing(SERVING, minimum=1), [ONE], Hold.OFFLINE)  # there are no others to bring back
    lame = routing(SERVING, SERVING, OFFLINE)
    assert counts(plan(lame, [THREE], Hold.OFFLINE)) == [(2, 2, 3)], "it does not serve"
    with pytest.raises(InvalidArgument, match="Bring its other targets back first"):
        plan(lame, [TWO], Hold.OFFLINE)
    with pytest.raises(InvalidArgument):
        plan(routing(SERVING, SERVING, SERVING, t201=Hold.OFFLINE), [ONE], Hold.OFFLINE)
    assert counts(plan(routing(SERVING, SERVING, t201=Hold.OFFLINE), [TWO], Hold.NONE)) == [(2, 2, 2)]


def test_those_that_served_a_chain_last_stay_unless_it_is_forced() -> None:
    """Nobody could serve the chain any more after the disk of one of them was replaced, as the other one was lost."""
    lost = routing(LASTSRV, LASTSRV, OFFLINE, minimum=1)
    with pytest.raises(InvalidArgument, match=r"only target 101 of node 1, .* had all .*accept-loss 1"):
        plan(lost, [TWO], Hold.OFFLINE)
    assert counts(plan(lost, [TWO], Hold.FORCED)) == counts(plan(lost, [THREE], Hold.OFFLINE)) == [(0, 1, 3)]
    assert counts(plan(lost, [TWO], Hold.NONE)) == [(0, 1, 3)]


def test_a_target_that_a_move_takes_away_is_no_copy_that_others_may_leave_for() -> None:
    """The hold was stored, and the held target stayed in service: the other one had left before."""
    whole = routing(SERVING, SERVING, minimum=1)
    moved = dataclasses.replace(whole, chains={ChainId(1): mark_leaving(whole.chains[ChainId(1)], ONE)})
    assert counts(plan(moved, [ONE], Hold.OFFLINE)) == [(1, 1, 2)]
    with pytest.raises(InvalidArgument, match="would have 0 of 2 copies in service"):
        plan(moved, [TWO], Hold.OFFLINE)


def test_only_a_head_rotates_and_only_known_targets_are_held() -> None:
    whole = routing(SERVING, SERVING, SERVING)
    assert counts(plan(whole, [ONE], Hold.ROTATE)) == [(2, 2, 3)]
    with pytest.raises(InvalidArgument, match="not the head"):
        plan(whole, [TWO], Hold.ROTATE)
    with pytest.raises(NotFound, match="no target 999"):
        plan(whole, [TargetId(999)], Hold.OFFLINE)
    with pytest.raises(InvalidArgument):
        plan(whole, [], Hold.OFFLINE)


def yielding(found: Routing) -> list[int]:
    chain = found.chains[ChainId(1)]
    return [m.target_id for m in chain.members if found.yields(m.target_id, chain, found.minimums()[ChainId(1)])]


def test_a_held_target_leaves_the_write_path_when_it_is_not_needed() -> None:
    offline, forced, rotate = Hold.OFFLINE, Hold.FORCED, Hold.ROTATE
    assert yielding(routing(SERVING, SERVING, SERVING)) == []
    assert yielding(routing(SERVING, SERVING, SERVING, t201=offline)) == [201]
    assert yielding(routing(SERVING, SERVING, SYNCING, t201=offline)) == [], "a write needs it"
    assert yielding(routing(SERVING, SERVING, SYNCING, t201=forced)) == [201]
    assert yielding(routing(SERVING, SERVING, SYNCING, t301=offline)) == [301]
    assert yielding(routing(SERVING, SERVING, SERVING, t101=offline, t201=offline)) == [], "none of them goes too far"
    assert yielding(routing(SERVING, SERVING, SERVING, minimum=1, t101=offline, t201=offline)) == [101, 201]
    assert yielding(routing(SERVING, SERVING, SERVING, t101=rotate)) == [101]
    assert yielding(routing(SERVING, SERVING, SERVING, t201=rotate)) == [], "another one has become the head"
    assert yielding(routing(SERVING, SERVING, WAITING, t301=forced)) == []
    lame = routing(SERVING, WAITING, OFFLINE, t101=offline, t201=offline, t301=forced)
    assert held_out(lame.chains[ChainId(1)], lame) == [201, 301]


def test_a_member_serves_in_the_place_of_one_that_is_held_as_long_as_a_write_needs_it() -> None:
    def stand_in(*states: PublicState, draining: bool = False, minimum: int = 2, **holds: Hold) -> list[int]:
        found = routing(*states, minimum=minimum, **holds)
        nodes = {
            n: Node(n, NodeKind.STORAGE, "", "h:1", 1, draining=draining and n == 3) for n in map(NodeId, (1, 2, 3))
        }
        found = dataclasses.replace(found, nodes=nodes)
        return [target for target in found.targets if stands_in(target, found.chains[ChainId(1)], found)]

    assert stand_in(SERVING, SERVING, OFFLINE, t301=Hold.OFFLINE) == [101, 201]
    assert stand_in(SERVING, SERVING, OFFLINE, t301=Hold.OFFLINE, minimum=1) == []
    assert stand_in(SERVING, SERVING, OFFLINE) == [], "it may never return"
    assert stand_in(SERVING, SERVING, OFFLINE, t301=Hold.OFFLINE, draining=True) == [], "nor need it"
    assert stand_in(SERVING, SERVING, SERVING, t301=Hold.OFFLINE) == []


def test_a_held_target_keeps_its_copy_beside_a_drain_that_waits_for_it() -> None:
    """The one that was to leave could not. When that had lasted, the one that did not serve went in its place."""

    async def body(nodes: MovingNodes) -> None:
        manager = nodes.manager
        await manager.set_min_replicas(pb.SetMinReplicasRequest(table_id=1, min_replicas=2))
        await manager.add_nodes(pb.AddNodesRequest(storage=[pb.PlannedNode(node_id=4)]))
        await nodes.join(4)
        drained = next(t for t in nodes.routing.targets.values() if t.node_id == 1)

        def members() -> dict[TargetId, PublicState]:
            return {m.target_id: m.state for m in nodes.routing.chains[drained.chain_id].members}

        (held,) = members().keys() - {drained.target_id}
        await manager.hold_targets(pb.HoldTargetsRequest(targets=[held], hold=pb.HOLD_FORCED))
        await nodes.until(lambda: members()[held] is OFFLINE)
        await manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        await asyncio.sleep(40 * LEASE_S)
        assert members()[held] is OFFLINE and list(members().values()).count(SERVING) == 2
        nodes.slow, nodes.resyncs_proceed = {int(nodes.routing.targets[held].node_id)}, True
        await manager.hold_targets(pb.HoldTargetsRequest(targets=[held], hold=pb.HOLD_NONE))
        await asyncio.sleep(40 * LEASE_S)
        assert members()[held] is SYNCING, "who returns keeps its copy, however long the rest of it takes"
        nodes.slow = set()
        await nodes.until(lambda: not nodes.held()[1])
        assert members()[held] is SERVING and len(members()) == 2

    run_moving(body)


async def hold(bench: Bench, hold: "pb.Hold", *targets: int) -> None:
    await bench.manager.hold_targets(pb.HoldTargetsRequest(targets=targets, hold=hold))


async def check_offline(bench: Bench) -> None:
    """R9: a node that does not know of the hold keeps its lease, and stays in the chain until that has ended."""
    await until(lambda: len(bench.manager._failure_detector._last_contact) == 3)
    head = next(iter(bench.states()))
    dry = pb.HoldTargetsRequest(targets=[head * 100 + 1], hold=pb.HOLD_OFFLINE, dry_run=True)
    (told,) = (await bench.manager.hold_targets(dry)).chains
    assert (told.serving, told.needed, told.members) == (2, 2, 3) and bench.chain().version == 1
    await hold(bench, pb.HOLD_OFFLINE, head * 100 + 1)
    leased = 0.0
    while bench.states()[head] is SERVING:
        leased = bench.manager._failure_detector._last_contact.get(TargetId(head * 100 + 1), leased)
        await asyncio.sleep(0.001)
    assert LOOP_CLOCK.monotonic() - leased >= 0.3
    bench.complete.add(head)
    await asyncio.sleep(3.0)
    assert bench.states()[head] is OFFLINE and bench.chain().version == 2, "it lives, and stays out"
    await hold(bench, pb.HOLD_NONE, head * 100 + 1)
    await until(lambda: set(bench.states().values()) == {SERVING})
    assert [*bench.states()][-1] == head


def test_a_target_out_of_service_stays_out_until_it_is_wanted_again() -> None:
    run(check_offline)


async def check_held_store(bench: Bench) -> None:
    def held_store() -> int:
        return bench.manager._publisher.routing.targets[TWO].held_store_id

    async def reported(store_id: int) -> None:
        bench.store_ids[2] = store_id
        report = bench.manager._failure_detector.report
        await until(lambda: (found := report(TWO)) is not None and found.store_id == store_id)

    await reported(9)
    await hold(bench, pb.HOLD_OFFLINE, TWO)
    assert held_store() == 9, "an empty store has taken the place of a damaged one, and the target has not synced since"
    await reported(11)
    await hold(bench, pb.HOLD_FORCED, TWO)
    assert held_store() == 9, "the new disk came before the force"
    await hold(bench, pb.HOLD_NONE, TWO)
    assert held_store() == 0
    await reported(0)
    await hold(bench, pb.HOLD_OFFLINE, TWO)
    assert held_store() == bench.manager._publisher.routing.targets[TWO].store_id, "its store cannot be opened"


def test_a_hold_remembers_the_store_that_is_there_when_it_begins() -> None:
    """The old disk passed for the new one, was filled, and served when it was pulled."""
    run(check_held_store)


async def check_rotation(bench: Bench) -> None:
    before = [*bench.states()]
    bench.complete.update(before)
    await hold(bench, pb.HOLD_ROTATE, before[0] * 100 + 1)
    await until(lambda: [*bench.states()] == [*before[1:], before[0]] and set(bench.states().values()) == {SERVING})
    assert {target.hold for target in bench.manager._publisher.routing.targets.values()} == {Hold.NONE}


def test_a_head_that_rotates_returns_behind_the_others() -> None:
    run(check_rotation)


async def check_unanswered(bench: Bench, engine: SilentEngine) -> None:
    before = [*bench.states()]
    bench.complete.update(before)

    async def rotated() -> None:
        """The news of it come with another change."""
        await bench.manager.set_min_replicas(pb.SetMinReplicasRequest(table_id=1, min_replicas=2))
        await until(lambda: [*bench.states()] == [*before[1:], before[0]])

    engine.silent_about, engine.after_silence = TARGET, rotated
    request = pb.HoldTargetsRequest(targets=[before[0] * 100 + 1], hold=pb.HOLD_ROTATE)
    (told,) = (await bench.manager.hold_targets(request)).chains
    assert engine.silent_about is None and (told.serving, told.members) == (2, 3)
    await until(lambda: set(bench.states().values()) == {SERVING})
    assert [*bench.states()] == [*before[1:], before[0]], "it rotates once"
    with pytest.raises(InvalidArgument, match="only a head rotates"):
        await bench.manager.hold_targets(request)


def test_a_rotation_is_told_although_its_commit_was_not_answered() -> None:
    engine = SilentEngine()
    run(lambda bench: check_unanswered(bench, engine), engine)


async def check_void_rotation(bench: Bench) -> None:
    first, second, third = bench.states()
    await bench.manager.set_min_replicas(pb.SetMinReplicasRequest(table_id=1, min_replicas=2))
    del bench.living[second]
    await until(lambda: bench.states()[second] is OFFLINE)
    with pytest.raises(InvalidArgument):
        await hold(bench, pb.HOLD_ROTATE, first * 100 + 1)
    assert bench.states() == {first: SERVING, third: SERVING, second: OFFLINE}


def test_a_head_that_is_needed_does_not_rotate() -> None:
    run(check_void_rotation)


async def check_two_calls(bench: Bench) -> None:
    await bench.manager.set_min_replicas(pb.SetMinReplicasRequest(table_id=1, min_replicas=2))
    calls = (hold(bench, pb.HOLD_OFFLINE, target) for target in (101, 201))
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in found] == [type(None), InvalidArgument], "the second one knows of the first"
    held = [t for t, target in bench.manager._publisher.routing.targets.items() if target.hold]
    assert held == [101]
    with pytest.raises(InvalidArgument, match="99 is no kind of hold"):
        await hold(bench, 99, 301)  # type: ignore[arg-type]


def test_two_calls_at_the_same_time_take_no_more_than_one_after_the_other() -> None:
    run(check_two_calls)


async def check_forced(bench: Bench) -> None:
    bench.complete.update((1, 2, 3))
    await hold(bench, pb.HOLD_FORCED, 101, 201, 301)
    await until(lambda: SERVING not in bench.states().values())
    version = bench.chain().version
    await asyncio.sleep(3.0)
    assert SERVING not in bench.states().values() and bench.chain().version == version, "nothing serves by itself"
    (last,) = [node for node, state in bench.states().items() if state is LASTSRV]
    await hold(bench, pb.HOLD_NONE, 101, 201, 301)
    await until(lambda: set(bench.states().values()) == {SERVING})
    assert next(iter(bench.states())) == last, "R7: the last that has served is the first to serve"


def test_a_whole_chain_goes_out_and_comes_back_in_the_right_order() -> None:
    run(check_forced)
