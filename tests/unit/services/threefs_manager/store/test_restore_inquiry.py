import asyncio

import pytest
from structlog.testing import capture_logs
from threefs_manager.election import Election
from threefs_manager.service import Manager
from threefs_manager.store.restore_inquiry import Inquiry

from tests.harness.clocks import SteppedClock
from tests.harness.manager_bench import Bench
from tests.harness.virtual_time import LOOP_CLOCK, run_virtual
from tests.unit.services.threefs_manager.test_service import PLAN, storage
from threefs import routing as routing_module
from threefs.background import cancel_and_wait
from threefs.cluster.manager_records import FIRST_ADDED_TARGET
from threefs.errors import InvalidArgument, NotFound, StrangeStore, Unavailable
from threefs.ids import ChainId, NodeId, TableId, TargetId
from threefs.kv.memory import MemoryEngine
from threefs.kv.restore_mark import read_mark, write_mark
from threefs.routing import Chain, ChainMember, Node, NodeKind, PublicState, Routing, Target
from threefs.wire import manager_pb2 as pb

SERVING, OFFLINE, LASTSRV = PublicState.SERVING, PublicState.OFFLINE, PublicState.LASTSRV
CHAIN = Chain(ChainId(1), 5, tuple(ChainMember(TargetId(target), SERVING) for target in (101, 201)))
ROUTING = Routing(
    9,
    "c",
    {NodeId(n): Node(NodeId(n), NodeKind.STORAGE, f"d{n}", f"h:{n}", 1) for n in (1, 2)},
    {TargetId(t): Target(TargetId(t), NodeId(t // 100), ChainId(1), 7) for t in (101, 201)},
    {ChainId(1): CHAIN},
    {},
    lease_ms=10_000,
)


def kept(chain: Chain, *targets: Target) -> pb.KeptChain:
    wire = [routing_module.target_to_wire(target) for target in targets]
    return pb.KeptChain(chain=routing_module.chain_to_wire(chain), targets=wire)


def told(node: int, target: int, what: pb.KeptChain | None) -> pb.RegisterRequest:
    return pb.RegisterRequest(node_id=node, stores=[pb.Store(target_id=target, store_id=7, kept=what)])


def test_all_stores_are_waited_for_and_the_newest_counts() -> None:
    inquiry = Inquiry(ROUTING, SteppedClock())
    assert (
        inquiry.awaited_nodes == [1, 2] and "awaited: 1, 2" in inquiry.reason() and "accept-unheard" in inquiry.reason()
    )
    newer = Chain(ChainId(1), 8, (CHAIN.members[0], ChainMember(TargetId(201), OFFLINE)))
    inquiry.on_register(told(1, 101, kept(newer)))
    assert inquiry.awaited_nodes == [2] and not inquiry.done.is_set()
    inquiry.on_register(told(2, 201, None))
    assert inquiry.awaited_nodes == [2], "a store that is new knows nothing of what was in its place"
    inquiry.on_register(told(2, 201, kept(Chain(ChainId(2), 9, ()))))
    assert inquiry.awaited_nodes == [2], "that is another chain's"
    inquiry.on_register(told(2, 201, kept(CHAIN)))
    assert inquiry.done.is_set() and inquiry.newest_chains[ChainId(1)].chain.version == 8
    with pytest.raises(NotFound, match="node 2 has no target 101"):
        inquiry.on_register(told(2, 101, kept(CHAIN)))


def test_members_that_came_since_the_backup_report_and_those_that_left_need_not() -> None:
    """Target 201 has moved to node 4, as target 900, and then 101 was put out: only 900 has what was acknowledged."""
    came = Target(TargetId(900), NodeId(4), ChainId(1), 7)
    moved = Chain(ChainId(1), 8, (CHAIN.members[0], ChainMember(came.target_id, SERVING)))
    newest = Chain(ChainId(1), 9, (ChainMember(came.target_id, SERVING), ChainMember(TargetId(101), OFFLINE)))
    one = ROUTING.targets[TargetId(101)]

    inquiry = Inquiry(ROUTING, SteppedClock())
    inquiry.on_register(told(1, 101, kept(moved, one, came)))
    assert inquiry.awaited_nodes == [4], "a number is not given twice: 201 is a member of no later version"
    with pytest.raises(NotFound, match="node 2 has no target 900"):
        inquiry.on_register(told(2, 900, kept(newest, came, one)))
    inquiry.on_register(told(4, 900, kept(newest, came, one)))
    assert inquiry.done.is_set() and inquiry.newest_chains[ChainId(1)].chain.version == 9

    early = Inquiry(ROUTING, SteppedClock())
    report = pb.RegisterRequest(node_id=4, unnamed_stores=told(4, 900, kept(newest, came, one)).stores)
    early.on_register(report)
    assert early.awaited_nodes == [1] and early.newest_chains[ChainId(1)].chain.version == 9
    early.on_register(told(2, 201, None))
    early.on_register(told(1, 101, kept(moved, one, came)))
    assert early.done.is_set() and early.newest_chains[ChainId(1)].chain.version == 9
    with pytest.raises(NotFound, match="no target 900"):
        Inquiry(ROUTING, SteppedClock()).on_register(told(4, 900, kept(Chain(ChainId(7), 9, ()), came)))


@pytest.mark.parametrize("what", [None, kept(Chain(ChainId(1), 40, CHAIN.members), *ROUTING.targets.values())])
def test_a_store_that_nothing_names_keeps_no_node_from_its_report(what: pb.KeptChain | None) -> None:
    """It was set aside after an earlier restore, whose chain goes on without it, or was never filled."""
    inquiry = Inquiry(ROUTING, SteppedClock())
    request = told(1, 101, kept(CHAIN))
    request.unnamed_stores.add(target_id=900, store_id=8, kept=what)
    inquiry.on_register(request)
    assert inquiry.awaited_nodes == [2]


def test_a_store_that_its_node_cannot_read_is_waited_for_although_nothing_names_it() -> None:
    """Target 201 moved to node 4 after the backup, and its store was deleted; then 101 was put out. So node 2 reports
    nothing, and its report would be given up, while 900 alone knows the newest version."""
    clock = SteppedClock()
    inquiry = Inquiry(ROUTING, clock)
    unread = pb.RegisterRequest(node_id=4, unnamed_stores=[pb.Store(target_id=900)])
    inquiry.on_register(unread)
    inquiry.on_register(told(1, 101, kept(CHAIN)))
    assert inquiry.awaited_nodes == [2, 4] and "target 900 of node 4" in inquiry.reason()
    clock.advance(10.0)
    inquiry.stop_awaiting([2])
    assert inquiry.awaited_nodes == [4] and not inquiry.done.is_set()

    came = Target(TargetId(900), NodeId(4), ChainId(1), 7)
    newest = Chain(ChainId(1), 9, (ChainMember(came.target_id, SERVING), ChainMember(TargetId(101), OFFLINE)))
    inquiry.on_register(pb.RegisterRequest(node_id=4, unnamed_stores=told(4, 900, kept(newest, came)).stores))
    assert inquiry.done.is_set() and inquiry.newest_chains[ChainId(1)].chain.version == 9


def test_a_store_that_nobody_can_read_is_given_up_for_good() -> None:
    """Its node goes on reporting it."""
    clock = SteppedClock()
    inquiry = Inquiry(ROUTING, clock)
    unread = pb.RegisterRequest(node_id=4, unnamed_stores=[pb.Store(target_id=900)])
    inquiry.on_register(unread)
    clock.advance(10.0)
    inquiry.stop_awaiting([4])
    inquiry.on_register(unread)
    assert inquiry.awaited_nodes == [1, 2] and "900" not in inquiry.reason()


@pytest.mark.parametrize("what", ["version", "state"])
def test_impossible_chains_are_refused(what: str) -> None:
    """The manager would have ended with it, and again with each start."""
    inquiry = Inquiry(ROUTING, SteppedClock())
    false = kept(CHAIN)
    if what == "version":
        false.chain.version = 2**32 - 1
    else:
        false.chain.members[0].state = 99  # type: ignore[assignment]
    with pytest.raises(InvalidArgument, match="node 1 reports chain 1"):
        inquiry.on_register(told(1, 101, false))
    assert not inquiry.newest_chains and inquiry.awaited_nodes == [1, 2]
    inquiry.on_register(told(1, 101, kept(CHAIN)))
    assert inquiry.awaited_nodes == [2]


def test_what_is_lost_for_good_is_given_up_when_no_lease_can_be_held_any_more() -> None:
    clock = SteppedClock()
    inquiry = Inquiry(ROUTING, clock)
    inquiry.on_register(told(2, 201, kept(CHAIN)))
    with pytest.raises(InvalidArgument, match="node 2 is not awaited; awaited nodes: 1"):
        inquiry.stop_awaiting([1, 2])
    with pytest.raises(Unavailable, match="try again in 10 s"):
        inquiry.stop_awaiting([1])
    clock.advance(10.0)
    assert inquiry.awaited_without([1]) == [] and inquiry.awaited_nodes == [1]
    inquiry.stop_awaiting([1])
    assert inquiry.done.is_set() and inquiry.awaited_nodes == []


async def _restored(bench: Bench) -> str:
    manager = await bench.start()
    cluster_id = (await manager.init(PLAN)).cluster_id
    tx = bench.engine.begin()
    write_mark(tx, complete=True)
    await tx.commit()
    await bench.stop()  # else it takes the store back after a while
    return cluster_id


async def test_a_restored_manager_serves_nothing_before_all_have_reported() -> None:
    bench = Bench()
    cluster_id = await _restored(bench)
    manager = await bench.start()
    routing = manager._publisher.routing
    status = await manager.get_status(pb.GetStatusRequest())
    assert list(status.awaited_nodes) == [1, 2, 3]
    one = routing.chains[ChainId(1)]
    members = (ChainMember(one.members[1].target_id, SERVING), ChainMember(one.members[0].target_id, OFFLINE))
    exclusive = Chain(ChainId(1), 40, (*members, ChainMember(one.members[2].target_id, OFFLINE)))
    stores = [Target(t.target_id, t.node_id, t.chain_id, 77) for t in routing.targets.values() if t.chain_id == 1]
    with pytest.raises(Unavailable, match="awaited"):
        await manager.accept_loss(pb.AcceptLossRequest(chain_id=1))
    for number in (1, 2, 3):
        request = storage(number, f"h:{number}", cluster_id=cluster_id if number > 1 else "")
        for target in routing.targets.values():
            if target.node_id == number:
                known = kept(exclusive, *stores) if target.chain_id == 1 else kept(routing.chains[target.chain_id])
                request.stores.add(target_id=target.target_id, store_id=77, kept=known)
        with pytest.raises(Unavailable, match="restored"):
            await manager.register(request)
    while manager._inquiry is not None:
        await asyncio.sleep(0)
    after = manager._publisher.routing
    states = {member.target_id: member.state for member in after.chains[ChainId(1)].members}
    assert states == {
        one.members[1].target_id: LASTSRV,
        one.members[0].target_id: OFFLINE,
        one.members[2].target_id: OFFLINE,
    }
    assert after.chains[ChainId(1)].version > 40
    assert all(t.store_id == 77 for t in after.targets.values() if t.chain_id == 1), "of the same moment"
    assert all(m.state is LASTSRV for m in after.chains[ChainId(2)].members)
    assert await read_mark(bench.engine.begin()) is None
    assert not (await manager.get_status(pb.GetStatusRequest())).awaited_nodes
    request = storage(1, "h:1", cluster_id=cluster_id)
    assert (await manager.register(request)).routing.version == after.version + 1
    with pytest.raises(InvalidArgument, match="no node is awaited"):
        await manager.accept_unheard(pb.AcceptUnheardRequest(nodes=[1]))
    await bench.stop()


async def test_a_restored_manager_whose_clock_was_set_back_ends_while_it_waits() -> None:
    """The storage processes ended one after the other, and it said that it waits for them. An administrator who did not
    want to wait made its chains from a store that was refused a moment later, and restored it anew."""
    bench = Bench()
    cluster_id = await _restored(bench)
    manager = await bench.start()
    bench.clock.advance(10.0)
    request = storage(1, "h:1", cluster_id=cluster_id)
    request.routing_version = manager._publisher.routing.version + 1
    with pytest.raises(StrangeStore, match="older copy"):
        await manager.register(request)
    await manager.accept_unheard(pb.AcceptUnheardRequest(nodes=[1, 2, 3]))
    with pytest.raises(StrangeStore, match="older copy"):
        async with asyncio.timeout(5):
            await bench._running[-1]
    mark = await read_mark(bench.engine.begin())
    assert mark is not None, "it is as it was restored"


async def test_members_that_chains_have_got_since_the_backup_are_known_and_their_numbers_are_not_given_again() -> None:
    """A second target of the same number would take the place of the first one, whose chunks would be deleted."""
    bench = Bench()
    cluster_id = await _restored(bench)
    manager = await bench.start()
    routing = manager._publisher.routing
    one = routing.chains[ChainId(1)]
    came = Target(TargetId(FIRST_ADDED_TARGET + 10_000), NodeId(4), ChainId(1), 88)  # to a node that has come as well
    newest = Chain(ChainId(1), 40, (*one.members[:2], ChainMember(came.target_id, SERVING)))
    stores = [routing.targets[member.target_id] for member in one.members[:2]]
    for number in (1, 2, 3):
        request = storage(number, f"h:{number}", cluster_id=cluster_id)
        for target in routing.targets.values():
            if target.node_id == number:
                is_old = target.chain_id != 1 or target.target_id == one.members[2].target_id
                known = kept(routing.chains[target.chain_id]) if is_old else kept(newest, *stores, came)
                request.stores.add(target_id=target.target_id, store_id=77, kept=known)
        with pytest.raises(Unavailable, match="restored"):
            await manager.register(request)
    request = storage(4, "h:4", cluster_id=cluster_id)
    request.unnamed_stores.add(target_id=came.target_id, store_id=88, kept=kept(newest, *stores, came))
    with pytest.raises(Unavailable, match="awaited: 4"):
        await manager.register(storage(4, "h:4", cluster_id=cluster_id))
    with pytest.raises(Unavailable, match="awaited: none"):
        await manager.register(request)
    while manager._inquiry is not None:
        await asyncio.sleep(0)
    for number in (1, 2, 3):
        await manager.register(storage(number, f"h:{number}", cluster_id=cluster_id))
    request.stores.extend(request.unnamed_stores)
    await manager.register(request)
    await manager.create_table(pb.CreateTableRequest(call_id=bytes(16), replicas=2, targets_per_disk=1))
    after = manager._publisher.routing
    assert after.nodes[NodeId(4)].address == "h:4"
    assert after.targets[came.target_id] == came and after.chains[ChainId(1)].state(came.target_id) is LASTSRV
    made = [t for t in after.targets.values() if t.chain_id in after.tables[TableId(2)]]
    assert made and all(target.target_id > came.target_id for target in made)
    await bench.stop()


@pytest.mark.parametrize("store_id", [None, 0, 88])
async def test_the_number_of_a_target_that_has_left_the_cluster_is_not_given_again(store_id: int | None) -> None:
    """Its store lies on a disk still, and passed for that of the new target. It was told that its chain goes on without
    it, or cannot be read (0), or its node does not name it any more (None)."""
    bench = Bench()
    cluster_id = await _restored(bench)
    manager = await bench.start()
    routing, far = manager._publisher.routing, FIRST_ADDED_TARGET + 100_000
    for number in (1, 2, 3):
        request = storage(number, f"h:{number}", cluster_id=cluster_id)
        own = (target for target in routing.targets.values() if target.node_id == number)
        for target in own:
            request.stores.add(target_id=target.target_id, store_id=77, kept=kept(routing.chains[target.chain_id]))
        if number == 1 and store_id is None:
            request.highest_target = far
        elif number == 1:
            request.unnamed_stores.add(target_id=far, store_id=store_id)
        with pytest.raises(Unavailable, match="restored"):
            await manager.register(request)
    bench.clock.advance(10.0)
    if store_id == 0:
        await manager.accept_unheard(pb.AcceptUnheardRequest(nodes=[1]))
    while manager._inquiry is not None:
        await asyncio.sleep(0)
    for number in (1, 2, 3):
        await manager.register(storage(number, f"h:{number}", cluster_id=cluster_id))
    await manager.create_table(pb.CreateTableRequest(call_id=bytes(16), replicas=2, targets_per_disk=2))
    after = manager._publisher.routing
    made = [t for t in after.targets.values() if t.chain_id in after.tables[TableId(2)]]
    assert made and all(target.target_id > far for target in made)
    await bench.stop()


async def test_processes_that_ran_on_have_to_register_again_first() -> None:
    """They hold leases of the manager before until they do."""
    bench = Bench()
    manager = await bench.start()
    cluster_id = (await manager.init(PLAN)).cluster_id
    await manager.register(storage(1, "h:1", cluster_id=cluster_id))
    beat = pb.HeartbeatRequest(node_id=1, incarnation=7)
    await manager.heartbeat(beat)
    tx = bench.engine.begin()
    write_mark(tx, complete=True)
    await tx.commit()
    manager = await bench.start()
    with pytest.raises(NotFound, match="register again"):
        await manager.heartbeat(beat)
    bench.clock.advance(10.0)
    reply = await manager.accept_unheard(pb.AcceptUnheardRequest(nodes=[1]))
    assert list(reply.awaited_nodes) == [2, 3]
    again = await bench.start()
    assert list((await again.get_status(pb.GetStatusRequest())).awaited_nodes) == [1, 2, 3], "of one term"
    await bench.stop()


def test_a_pause_between_registrations_at_a_restored_manager_is_no_suspension() -> None:
    """Nothing else told it that it ran: each registration after a pause put off what waits for T."""

    async def main() -> None:
        engine = MemoryEngine()

        async def start() -> tuple[Manager, "asyncio.Task[None]"]:
            election = Election(engine, "one", length_s=1.0, exclusive=True, clock=LOOP_CLOCK)
            manager = Manager(engine, election, lease_s=10.0, clock=LOOP_CLOCK)
            running = asyncio.create_task(manager.run())
            await manager.leading.wait()
            return manager, running

        manager, running = await start()
        cluster_id = (await manager.init(PLAN)).cluster_id
        await cancel_and_wait(running)
        tx = engine.begin()
        write_mark(tx, complete=True)
        await tx.commit()
        manager, running = await start()
        began = LOOP_CLOCK.monotonic()
        with capture_logs() as logs:
            for _ in range(3):
                await asyncio.sleep(5.0)
                with pytest.raises(Unavailable, match="restored"):
                    await manager.register(storage(1, "h:1", cluster_id=cluster_id))
        assert not [line for line in logs if "suspended_s" in line]
        await manager._stale_store.wait_heard()
        assert LOOP_CLOCK.monotonic() - began < 16.0
        await cancel_and_wait(running)

    run_virtual(main())
