"""Transactions that change chains: they are bounded, and fail one way or the other."""

import asyncio

import pytest
from threefs_manager.stale_stores.manager_store import StaleStoreDetector
from threefs_manager.store.cluster_store import Writer

from tests.harness.chain_desk import Desk, Moody, at_desk
from tests.harness.chain_harness import until
from tests.harness.terms import take
from tests.harness.virtual_time import run_virtual
from threefs.errors import Conflict, InvalidArgument
from threefs.ids import NodeId, TargetId
from threefs.routing import PublicState
from threefs.wire import manager_pb2 as pb

SERVING, LASTSRV, OFFLINE = PublicState.SERVING, PublicState.LASTSRV, PublicState.OFFLINE


async def check_batches(desk: Desk) -> None:
    assert not desk.engine.committed, "all is well, so nothing is written"
    desk.controller.on_process_death(NodeId(1))
    assert desk.heartbeat(1) == 0 and desk.heartbeat(2) == 600
    await desk.controller.wait_idle(10)
    assert (desk.served_by(1), desk.served_by(2)) == (0, 600)
    assert desk.engine.committed == [256, 256, 88], "a transaction holds only so much"
    assert len(desk.changes) == 600 and all(after.version == before.version + 1 for before, after in desk.changes)


async def check_old_reports(desk: Desk) -> None:
    desk.controller.on_process_death(NodeId(1))
    desk.heartbeat(2)
    await desk.controller.wait_idle(10)
    (chain,) = desk.publisher.routing.chains.values()
    assert chain.state(TargetId(10_001)) is OFFLINE
    desk.heartbeat(1)  # it may come back, but dies before anybody has looked at this
    desk.controller.on_process_death(NodeId(1))
    await desk.controller.wait_idle(10)
    (chain,) = desk.publisher.routing.chains.values()
    assert chain.state(TargetId(10_001)) is OFFLINE, "it was the dead process that missed nothing"
    desk.heartbeat(1)
    await desk.controller.wait_idle(10)
    assert desk.served_by(1) == 1


def test_what_the_process_before_reported_of_targets_out_of_the_write_path_is_forgotten() -> None:
    at_desk(1, check_old_reports)


def test_a_node_of_many_chains_is_taken_out_in_batches() -> None:
    at_desk(600, check_batches)


async def check_lost(desk: Desk) -> None:
    desk.engine.lost = 3
    desk.controller.on_process_death(NodeId(1))
    assert desk.heartbeat(2) == 2
    await desk.controller.wait_idle(10)
    assert (desk.engine.lost, desk.served_by(1), desk.served_by(2)) == (0, 0, 2)
    assert [after.version for _, after in desk.changes] == [2, 2]


def test_a_change_that_failed_is_made_again() -> None:
    at_desk(2, check_lost)


async def check_unknown(desk: Desk) -> None:
    desk.engine.unknown = 1
    desk.controller.on_process_death(NodeId(1))
    assert desk.heartbeat(2) == 2
    while not desk.engine.committed:
        await asyncio.sleep(0)
    assert desk.served_by(1) == 2 and desk.heartbeat(1) == 0, "R9: no lease while nobody knows whether it is out"
    await desk.controller.wait_idle(10)
    assert desk.served_by(1) == 0 and desk.engine.committed == [2], "what had happened is not done once more"
    assert {chain.version for chain in desk.publisher.routing.chains.values()} == {2}
    assert desk.heartbeat(1) == 0, "it is out: there is no lease for it"
    await until(lambda: {chain.version for chain in desk.publisher.routing.chains.values()} == {3})
    assert desk.heartbeat(1) == 2, "it was let in again, to be filled"


def test_r9_a_change_with_unknown_outcome_is_looked_up_and_not_repeated() -> None:
    at_desk(2, check_unknown)


async def check_published_by_another(desk: Desk) -> None:
    async def other_change(writer: Writer) -> None:
        writer.cluster.lease_ms += 1

    async def publish() -> None:
        _, routing = await desk.store.change(other_change)
        desk.publisher.publish(routing)

    desk.engine.unknown, desk.engine.meanwhile = 1, publish
    desk.controller.on_process_death(NodeId(1))
    assert desk.heartbeat(2) == 2
    await until(lambda: desk.served_by(1) == 0)
    assert desk.heartbeat(1) == 0, "it is out: there is no lease for it"
    await until(lambda: {chain.version for chain in desk.publisher.routing.chains.values()} == {3})
    assert desk.heartbeat(1) == 2, "it was let in again, to be filled"


def test_targets_that_another_transaction_has_told_to_be_out_may_come_back() -> None:
    """Seed 969: the transaction that put them out was made, its answer was lost, and one that removed a silent meta
    service published it. The targets counted as dead for ever."""
    at_desk(2, check_published_by_another)


def test_i8_it_ends_when_another_manager_has_taken_over() -> None:
    async def main() -> None:
        engine = Moody()
        desk = Desk(engine, await take(engine, "one"), 1)
        await desk.plan()
        desk.heartbeat(2)
        await take(engine, "two")
        desk.controller.on_process_death(NodeId(1))
        desk.heartbeat(2)
        async with asyncio.timeout(10):
            await desk.controller.run()
        assert not engine.committed and not desk.changes and desk.served_by(1) == 1

    run_virtual(main())


async def check_all_restarted(desk: Desk) -> None:
    desk.controller.on_process_death(NodeId(1))
    await desk.controller.wait_idle(10)
    assert desk.served_by(1) == 2, "R7: nobody has been heard of since, so perhaps nobody else is left"
    desk.controller.on_process_death(NodeId(2))
    await desk.controller.wait_idle(10)
    states = {m.state for chain in desk.publisher.routing.chains.values() for m in chain.members}
    assert states == {LASTSRV}
    desk.controller.on_process_death(NodeId(1))
    await desk.controller.wait_idle(10)
    assert len(desk.changes) == 2, "who is out cannot be put out"


def test_when_all_were_started_anew_each_has_what_was_acknowledged() -> None:
    at_desk(2, check_all_restarted)


async def check_suspended(desk: Desk) -> None:
    def suspend() -> None:
        desk.clock.advance(11_000)  # T is 10,000 s

    desk.engine.during = suspend
    desk.controller.on_process_death(NodeId(1))
    assert desk.heartbeat(2) == 1
    await desk.controller.wait_idle(10)
    assert desk.served_by(1) == 0
    desk.engine.during = lambda: None
    for _ in range(3):
        desk.controller.enqueue(desk.publisher.routing.chains)
        await desk.controller.wait_idle(10)
    assert desk.served_by(2) == 1, "it is not known to be silent"


def test_r9_a_silence_while_the_manager_was_suspended_in_a_transaction_says_nothing() -> None:
    """Only suspensions that met it between two transactions were noticed."""
    at_desk(1, check_suspended)


async def check_suspended_before_a_repeat(desk: Desk) -> None:
    def suspend() -> None:
        desk.engine.before = lambda: None
        desk.clock.advance(11_000)  # T is 10,000 s
        raise Conflict

    desk.engine.before = suspend
    desk.controller.on_process_death(NodeId(1))
    assert desk.heartbeat(2) == 1
    await desk.controller.wait_idle(10)
    assert (desk.served_by(1), desk.served_by(2)) == (0, 1), "node 2 is not known to be silent"


def test_r9_nor_when_the_transaction_looks_at_the_members_anew() -> None:
    """It took all of them for dead: no copy of the chain served, and all but one were filled anew."""
    at_desk(1, check_suspended_before_a_repeat)


async def check_suspended_before_a_call(desk: Desk) -> None:
    request = pb.AcceptLossRequest(chain_id=1, target_id=10_001, chain_version=1, dry_run=True)
    desk.clock.advance(11_000)  # T is 10,000 s
    with pytest.raises(InvalidArgument, match="is served"):
        await desk.controller.accept_loss(request)
    assert (desk.heartbeat(1), desk.heartbeat(2)) == (1, 1), "nobody is fenced"


def test_r9_nor_when_an_administrator_asks_to_accept_the_loss_of_a_chain_that_is_served() -> None:
    """The call was refused, and then no copy of the chain served."""
    at_desk(1, check_suspended_before_a_call)


async def check_many_calls_in_one_turn(desk: Desk) -> None:
    assert desk.heartbeat(1) == 1
    for _ in range(110):
        desk.clock.advance(100)
        lease_s = desk.controller.routing_to_judge().lease_s
    assert desk.failure_detector.is_alive(1, lease_s), "nobody could be heard in that time"


def test_r9_a_silence_while_calls_held_the_loop_up_says_nothing() -> None:
    """Each call for itself was short."""
    at_desk(1, check_many_calls_in_one_turn)


async def check_loss_of_a_served_chain(desk: Desk) -> None:
    for _ in range(12):
        desk.clock.advance(1000)  # node 1 is silent for T, and the next sweep finds it
        desk.controller._on_tick()
        assert desk.heartbeat(2) == 1
    request = pb.AcceptLossRequest(chain_id=1, target_id=10_001, chain_version=1)
    with pytest.raises(InvalidArgument, match="is served"):
        await desk.controller.accept_loss(request)
    assert desk.heartbeat(1) == 1


def test_a_call_that_is_refused_fences_nobody() -> None:
    at_desk(1, check_loss_of_a_served_chain)


async def check_suspended_before_a_loss(desk: Desk) -> None:
    for node in (1, 2):
        desk.controller.on_process_death(NodeId(node))
    await desk.controller.wait_idle(10)
    desk.heartbeat(1, store_id=6)
    await desk.controller.wait_idle(10)
    (chain,) = desk.publisher.routing.chains.values()
    assert {member.state for member in chain.members} == {LASTSRV}
    request = pb.AcceptLossRequest(chain_id=1, target_id=10_001, chain_version=chain.version)
    dry = pb.AcceptLossRequest(chain_id=1, target_id=10_001, chain_version=chain.version, dry_run=True)
    desk.clock.advance(11_000)  # T is 10,000 s
    assert (await desk.controller.accept_loss(dry)).serving == (10_001,)

    def suspend() -> None:
        desk.engine.before = lambda: None
        desk.clock.advance(11_000)
        raise Conflict

    desk.engine.before = suspend
    assert (await desk.controller.accept_loss(request)).serving == (10_001,)


def test_a_loss_is_accepted_by_what_lived_before_the_manager_was_suspended() -> None:
    at_desk(1, check_suspended_before_a_loss)


async def check_suspended_at_the_start(desk: Desk) -> None:
    desk.controller._stale_store = stale_store = StaleStoreDetector(desk.publisher.routing, desk.clock)
    desk.clock.advance(11_000)  # T is 10,000 s
    stale_store.check(pb.HeartbeatRequest(node_id=1), keeps_chains=True)
    desk.controller.enqueue(desk.publisher.routing.chains)
    await asyncio.sleep(1)
    assert not stale_store.confirmed, "node 2 had no time to say that it knows a newer store"


def test_a_manager_that_was_suspended_at_its_start_hears_all_that_serve_before_it_changes_chains() -> None:
    at_desk(1, check_suspended_at_the_start)
