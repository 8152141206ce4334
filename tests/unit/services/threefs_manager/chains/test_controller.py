"""Chains change when their targets die, return and catch up."""

import asyncio

import pytest
from threefs_manager.chains.resync_progress import STALLED_LEASES

from tests.harness.beating_nodes import Bench, run
from tests.harness.chain_harness import until
from tests.harness.interrupted_engine import InterruptedEngine
from tests.harness.moving_nodes import MovingNodes, run_moving
from tests.harness.silent_engine import SilentEngine
from tests.harness.virtual_time import LOOP_CLOCK
from threefs.background import cancel_and_wait
from threefs.cluster.manager_records import CHAIN, CLUSTER_KEY, FIRST_ADDED_TARGET
from threefs.errors import InvalidArgument, NotFound, Unavailable
from threefs.ids import ChainId, TargetId
from threefs.kv.memory import MemoryEngine
from threefs.kv.transaction import BufferedTransaction
from threefs.routing import PublicState
from threefs.wire import manager_pb2 as pb

SERVING, SYNCING, LASTSRV, OFFLINE = (
    PublicState.SERVING,
    PublicState.SYNCING,
    PublicState.LASTSRV,
    PublicState.OFFLINE,
)


async def check_silence(bench: Bench) -> None:
    await asyncio.sleep(0.1)
    del bench.living[2]
    await until(lambda: bench.states() == {1: SERVING, 3: SERVING, 2: OFFLINE})
    bench.living[2] = 1
    await until(lambda: bench.states() == {1: SERVING, 3: SERVING, 2: SYNCING})
    bench.complete.add(2)
    await until(lambda: bench.states() == {1: SERVING, 3: SERVING, 2: SERVING})


def test_a_silent_target_leaves_and_comes_back_by_resync() -> None:
    run(check_silence)


async def check_silence_among_news(bench: Bench) -> None:
    await asyncio.sleep(0.1)
    controller = bench.manager._controller
    assert controller is not None

    async def tell_news() -> None:
        while True:
            controller.enqueue([ChainId(99)])
            await asyncio.sleep(0.001)

    news = asyncio.create_task(tell_news())
    del bench.living[2]
    await until(lambda: bench.states()[2] is OFFLINE)
    await cancel_and_wait(news)


def test_a_silence_is_found_though_there_are_news_all_the_time() -> None:
    run(check_silence_among_news)


async def check_stalled(bench: Bench) -> None:
    """Target 2 gets nothing done, and 3 waits. R9: while 2 holds a lease it stays in the chain."""
    await asyncio.sleep(0.1)
    for node in (2, 3):
        del bench.living[node]
    await until(lambda: bench.states() == {1: SERVING, 2: OFFLINE, 3: OFFLINE})
    bench.living[2] = 1
    await until(lambda: bench.states()[2] is SYNCING)
    version = bench.chain().version
    bench.living[3] = 1
    await asyncio.sleep((STALLED_LEASES - 0.5) * 0.3)
    assert bench.chain().version == version, "a return does not disturb it"
    leased = 0.0
    while bench.states()[2] is SYNCING:
        leased = bench.manager._failure_detector._last_contact.get(TargetId(201), leased)
        await asyncio.sleep(0.001)
    assert LOOP_CLOCK.monotonic() - leased >= 0.3
    await until(lambda: bench.states()[3] is SYNCING)
    bench.complete.add(3)
    await until(lambda: bench.states() == {1: SERVING, 3: SERVING, 2: SYNCING})
    bench.complete.add(2)
    await until(lambda: bench.states() == {1: SERVING, 3: SERVING, 2: SERVING})


def test_a_resync_that_gets_nothing_done_gives_way_to_another_one() -> None:
    run(check_stalled)


async def check_failed_link(bench: Bench) -> None:
    """R9: while the target that gives way holds a lease it stays in the chain."""
    await asyncio.sleep(0.1)
    assert [*bench.states()] == [1, 3, 2]
    bench.unreachable[3] = pb.UnreachablePeer(node_id=2, unreachable_ms=299)
    await asyncio.sleep(1.0)
    assert bench.chain().version == 1, "the report has not stood for T"
    bench.unreachable[3].unreachable_ms = 300
    leased = 0.0
    while bench.states()[2] is SERVING:
        leased = bench.manager._failure_detector._last_contact.get(TargetId(201), leased)
        await asyncio.sleep(0.001)
    assert LOOP_CLOCK.monotonic() - leased >= 0.3
    await asyncio.sleep(5.0)
    assert bench.states() == {1: SERVING, 3: SERVING, 2: OFFLINE}
    status = await bench.manager.get_status(pb.GetStatusRequest())
    (failure,) = [t.failure for node in status.nodes for t in node.targets if t.target_id == 201]
    assert "target 301 cannot reach it" in failure and "between nodes 3 and 2" in failure
    assert status.link_removals == 1
    assert [peer.node_id for node in status.nodes for peer in node.unreachable] == [2]
    del bench.unreachable[3]
    bench.complete.add(2)
    await until(lambda: bench.states() == {1: SERVING, 2: SERVING, 3: SERVING})


def test_a_target_that_its_predecessor_cannot_reach_gives_way() -> None:
    run(check_failed_link)


async def check_restart(bench: Bench) -> None:
    await asyncio.sleep(0.1)
    del bench.living[1]
    bench.manager._failure_detector.mark_dead(1, 1)  # its connection has told
    await bench.register(1, 2)
    assert bench.states()[1] in (OFFLINE, SYNCING), "R8: the registration of a new incarnation waits for this"


def test_a_restart_takes_the_old_incarnation_out_at_once() -> None:
    run(check_restart)


async def check_all_die(bench: Bench) -> None:
    await asyncio.sleep(0.1)
    bench.living.clear()
    await until(lambda: set(bench.states().values()) == {LASTSRV})
    await bench.register(3, 2)
    await until(lambda: bench.states() == {1: OFFLINE, 2: OFFLINE, 3: SERVING})
    await bench.register(1, 2)
    await until(lambda: bench.states() == {1: SYNCING, 2: OFFLINE, 3: SERVING})


def test_when_all_die_the_first_to_return_serves_alone() -> None:
    run(check_all_die)


async def check_wiped(bench: Bench) -> None:
    await asyncio.sleep(0.1)
    bench.living.clear()
    await until(lambda: set(bench.states().values()) == {LASTSRV})
    await bench.register(3, 2, store_id=6)
    bench.living[3] = 2
    await asyncio.sleep(0.2)
    # The heartbeats of this bench name store 5, so only the registration tells of the wipe.
    routing = bench.manager._publisher.routing
    assert {target.store_id for target in routing.targets.values()} == {5}, "what it must have is remembered"


def test_a_wiped_survivor_is_not_taken_for_one_that_has_its_data() -> None:
    run(check_wiped)


def test_a_survivor_that_loses_its_disk_while_the_store_sleeps_does_not_serve() -> None:
    """The manager had decided before that it serves the chain, and it did so alone, with an empty disk."""
    engine = InterruptedEngine()

    async def check(bench: Bench) -> None:
        async def restart_without_disk() -> None:
            bench.store_ids[3] = 6
            bench.manager._failure_detector.mark_dead(3, 2)  # its connection has told
            await bench.register(3, 3, store_id=6)

        await asyncio.sleep(0.1)
        bench.living.clear()
        await until(lambda: set(bench.states().values()) == {LASTSRV})
        engine.interrupted_at, engine.meanwhile = CHAIN, restart_without_disk
        await bench.register(3, 2)
        await until(lambda: bench.living.get(3) == 3)
        await asyncio.sleep(0.2)
        assert set(bench.states().values()) == {LASTSRV}
        bench.store_ids[3] = 5
        bench.manager._failure_detector.mark_dead(3, 3)
        await bench.register(3, 4)
        await until(lambda: bench.states() == {1: OFFLINE, 2: OFFLINE, 3: SERVING})

    run(check, engine)


async def check_forgotten_meta_services(bench: Bench) -> None:
    def meta(port: int, incarnation: int) -> pb.RegisterRequest:
        return pb.RegisterRequest(kind=pb.META, address=f"m:{port}", incarnation=incarnation)

    def addresses() -> tuple[str, ...]:
        return bench.manager._publisher.routing.meta_addresses()

    await bench.manager.register(meta(1, 1))
    moved = await bench.manager.register(meta(2, 2))
    assert addresses() == ("m:1", "m:2")
    while addresses() != ("m:2",):
        await bench.manager.heartbeat(pb.HeartbeatRequest(node_id=moved.node_id, incarnation=2))
        await asyncio.sleep(0.01)
    assert (await bench.manager.register(meta(1, 1))).node_id > moved.node_id, "it came back"
    await until(lambda: addresses() == ())
    assert len(bench.manager._publisher.routing.nodes) == 3, "storage stays in the plan"


def test_addresses_of_meta_services_that_are_gone_are_forgotten() -> None:
    run(check_forgotten_meta_services)


async def check_living_meta_service(bench: Bench) -> None:
    manager, controller = bench.manager, bench.manager._controller
    assert controller is not None
    node_id = (await manager.register(pb.RegisterRequest(kind=pb.META, address="m:1", incarnation=1))).node_id
    suspended = False

    async def suspend() -> None:
        nonlocal suspended
        suspended = True
        asyncio.get_running_loop()._now += 5.0  # type: ignore[attr-defined]

    for beats in range(40):
        await asyncio.sleep(0.05)  # the term lasts longer than T
        await manager.heartbeat(pb.HeartbeatRequest(node_id=node_id, incarnation=1))
        if beats == 20:
            controller.on_caught_up, controller._store.may_be_ahead = suspend, True
    assert suspended and manager._publisher.routing.meta_addresses() == ("m:1",)


def test_a_meta_service_stays_although_the_manager_was_suspended_while_it_read_the_store_again() -> None:
    """No service of the metadata store was known then: a copy could have been admitted beside it."""
    run(check_living_meta_service)


def test_moves_stay_although_the_manager_was_suspended_while_it_changed_a_chain() -> None:
    """Their nodes were taken for silent, and moves that had not begun were taken back."""
    engine = InterruptedEngine()

    async def body(nodes: MovingNodes) -> None:
        async def suspend() -> None:
            asyncio.get_running_loop()._now += 5.0  # type: ignore[attr-defined]

        await nodes.manager.add_nodes(pb.AddNodesRequest(storage=[pb.PlannedNode(node_id=4)]))
        await nodes.join(4)
        nodes.slow.add(4)  # one move after the other fills it
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        await nodes.until(lambda: any(m.state is SYNCING for c in nodes.routing.chains.values() for m in c.members))
        engine.interrupted_at, engine.meanwhile = CHAIN, suspend
        nodes.slow.clear()
        await nodes.until(lambda: not nodes.held()[1])
        assert engine.meanwhile is None and max(nodes.routing.targets) == FIRST_ADDED_TARGET + 2

    run_moving(body, engine)


async def check_accepted_loss(bench: Bench) -> None:
    """All disks were exchanged while nothing ran: the chain waits for ever, until an administrator gives up."""
    await asyncio.sleep(0.1)
    bench.living.clear()
    await until(lambda: set(bench.states().values()) == {LASTSRV})
    bench.store_id = 6
    for node in (1, 2, 3):
        await bench.register(node, 2, store_id=6)
    await asyncio.sleep(0.5)
    assert set(bench.states().values()) == {LASTSRV}
    version = bench.chain().version
    for chain_id, seen, target, error in (
        (9, version, 301, NotFound),
        (1, version - 1, 301, InvalidArgument),
        (1, version, 999, InvalidArgument),
    ):
        with pytest.raises(error):
            await bench.manager.accept_loss(
                pb.AcceptLossRequest(chain_id=chain_id, chain_version=seen, target_id=target)
            )
    for seen, target in ((version - 1, 301), (version, 999)):
        with pytest.raises(InvalidArgument):
            await bench.manager.accept_loss(
                pb.AcceptLossRequest(chain_id=1, chain_version=seen, target_id=target, dry_run=True)
            )
    request = pb.AcceptLossRequest(chain_id=1, chain_version=version, target_id=301)
    dry = pb.AcceptLossRequest(chain_id=1, chain_version=version, target_id=301, dry_run=True)
    assert (await bench.manager.accept_loss(dry)).chain.members[0].target_id == 301
    assert bench.chain().version == version and set(bench.states().values()) == {LASTSRV}
    reply = await bench.manager.accept_loss(request)
    assert reply.chain.version == version + 1 and reply.chain.members[0].target_id == 301
    for node in (1, 2):
        await until(lambda node=node: bench.states()[node] is SYNCING)  # type: ignore[misc]
        bench.complete.add(node)
    await until(lambda: set(bench.states().values()) == {SERVING})
    assert {target.store_id for target in bench.manager._publisher.routing.targets.values()} == {6}
    with pytest.raises(InvalidArgument, match="is served: nothing of it is lost"):
        await bench.manager.accept_loss(
            pb.AcceptLossRequest(chain_id=1, chain_version=bench.chain().version, target_id=101)
        )


def test_an_accepted_loss_brings_a_chain_back() -> None:
    run(check_accepted_loss)


async def check_unanswered_loss(bench: Bench, engine: SilentEngine) -> None:
    await asyncio.sleep(0.1)
    bench.living.clear()
    await until(lambda: set(bench.states().values()) == {LASTSRV})
    bench.store_id = 6
    await bench.register(1, 2, store_id=6)
    await asyncio.sleep(0.5)
    version = bench.chain().version
    engine.silent_about = CHAIN
    request = pb.AcceptLossRequest(chain_id=1, chain_version=version, target_id=101)
    reply = await bench.manager.accept_loss(request)
    assert engine.silent_about is None and reply.chain.version == version + 1
    assert bench.states()[1] is SERVING


def test_an_accepted_loss_is_told_although_its_commit_was_not_answered() -> None:
    engine = SilentEngine()
    run(lambda bench: check_unanswered_loss(bench, engine), engine)


async def check_loss_of_a_chain_that_goes_on(bench: Bench, engine: SilentEngine) -> None:
    await asyncio.sleep(0.1)
    bench.living.clear()
    await until(lambda: set(bench.states().values()) == {LASTSRV})
    bench.store_id = 6
    for node in (1, 2):
        await bench.register(node, 2, store_id=6)
    await asyncio.sleep(0.5)
    version = bench.chain().version

    async def goes_on() -> None:
        """Another change tells of the chain, and a second target returns to it."""
        await bench.manager.set_min_replicas(pb.SetMinReplicasRequest(table_id=1, min_replicas=1))
        await until(lambda: bench.states()[2] is SYNCING)

    engine.silent_about, engine.after_silence = CHAIN, goes_on
    request = pb.AcceptLossRequest(chain_id=1, chain_version=version, target_id=101)
    reply = await bench.manager.accept_loss(request)
    assert reply.chain.version == version + 1 < bench.chain().version
    again = pb.AcceptLossRequest(chain_id=1, chain_version=version, target_id=201)
    with pytest.raises(InvalidArgument, match="has changed"):
        await bench.manager.accept_loss(again)


def test_an_accepted_loss_is_told_although_the_chain_has_gone_on_since() -> None:
    engine = SilentEngine()
    run(lambda bench: check_loss_of_a_chain_that_goes_on(bench, engine), engine)


async def lost_but_for_an_older_copy(bench: Bench) -> pb.AcceptLossRequest:
    """All targets of the chain are gone, and one has come back with an older disk: how its loss is accepted."""
    bench.generations = {1: 70, 2: 70, 3: 70}
    await asyncio.sleep(0.2)
    bench.living.clear()
    await until(lambda: set(bench.states().values()) == {LASTSRV})
    bench.generations[2] = 12
    await bench.register(2, 2)
    await asyncio.sleep(0.5)
    return pb.AcceptLossRequest(chain_id=1, chain_version=bench.chain().version, target_id=201)


async def serves_after_a_restart(bench: Bench) -> None:
    """The target whose loss was accepted counts as no older copy."""
    bench.living.clear()
    await until(lambda: bench.states()[2] is LASTSRV)
    await bench.register(2, 3)
    await until(lambda: bench.states()[2] is SERVING)


class RefusingEngine(MemoryEngine):
    """Makes no change of chains while it `refuses`."""

    refuses = False

    async def commit(self, attempt: BufferedTransaction) -> None:
        if self.refuses and any(key.startswith(CHAIN) for key in attempt.writes):
            raise Unavailable("the store is away")
        await super().commit(attempt)


async def check_loss_that_is_not_stored(bench: Bench, engine: RefusingEngine) -> None:
    request = await lost_but_for_an_older_copy(bench)
    engine.refuses = True
    with pytest.raises(Unavailable):
        await bench.manager.accept_loss(request)
    engine.refuses = False
    await asyncio.sleep(1.0)
    assert set(bench.states().values()) == {LASTSRV}, "the newest disk may be found before anybody asks again"
    controller = bench.manager._controller
    assert controller is not None and not controller._accepted, "what was not stored is forgotten"
    await bench.manager.accept_loss(request)
    assert bench.states()[2] is SERVING
    await serves_after_a_restart(bench)


def test_an_older_copy_does_not_serve_when_its_acceptance_could_not_be_stored() -> None:
    engine = RefusingEngine()
    run(lambda bench: check_loss_that_is_not_stored(bench, engine), engine)


class LateEngine(MemoryEngine):
    """The answer about the read of all that is stored comes when a loss is being accepted."""

    def __init__(self) -> None:
        super().__init__()
        self.late = False
        self.read, self.accepting = asyncio.Event(), asyncio.Event()

    async def commit(self, attempt: BufferedTransaction) -> None:
        accepts = any(key.startswith(CHAIN) for key in attempt.writes)
        if self.late and accepts:
            self.late = False
            self.accepting.set()
            await asyncio.sleep(0.05)
        await super().commit(attempt)
        if self.late and CLUSTER_KEY in attempt.writes:
            self.read.set()
            await self.accepting.wait()


async def check_loss_while_the_store_is_read(bench: Bench, engine: LateEngine) -> None:
    request = await lost_but_for_an_older_copy(bench)
    assert bench.manager._controller is not None
    engine.late, bench.manager._controller._store.may_be_ahead = True, True
    await engine.read.wait()
    await bench.manager.accept_loss(request)
    assert bench.states()[2] is SERVING and not bench.manager._controller._accepted
    await asyncio.sleep(0.5)
    await serves_after_a_restart(bench)


def test_a_target_whose_loss_was_accepted_while_the_store_was_read_is_no_older_copy() -> None:
    engine = LateEngine()
    run(lambda bench: check_loss_while_the_store_is_read(bench, engine), engine)


async def check_old_copies(bench: Bench) -> None:
    """All went down, and the disks of two were put back from copies. Only one that has everything may serve alone."""
    bench.generations = {1: 70, 2: 70, 3: 70}
    await asyncio.sleep(0.2)
    bench.living.clear()
    await until(lambda: set(bench.states().values()) == {LASTSRV})
    bench.generations = {1: 69, 2: 12, 3: 71}
    for node in (1, 2):
        await bench.register(node, 2)
    await asyncio.sleep(0.5)
    assert set(bench.states().values()) == {LASTSRV}, "neither has everything"
    status = await bench.manager.get_status(pb.GetStatusRequest())
    said = status.nodes[1].targets[0].failure
    assert "its newest change is 12, and change 70 was reported before. Put the newest disk in its place" in said
    await bench.register(3, 2)
    await until(lambda: bench.states()[3] is SERVING)
    for node in (1, 2):
        await until(lambda node=node: bench.states()[node] is SYNCING)  # type: ignore[misc]
        bench.complete.add(node)
    await until(lambda: set(bench.states().values()) == {SERVING})
    status = await bench.manager.get_status(pb.GetStatusRequest())
    assert not any(node.targets[0].failure for node in status.nodes), "they are filled anew, and counted anew"
    bench.living.clear()
    await until(lambda: set(bench.states().values()) == {LASTSRV})
    await bench.register(2, 3)
    await until(lambda: bench.states()[2] is SERVING)


def test_a_survivor_whose_disk_is_an_old_copy_does_not_serve_alone() -> None:
    run(check_old_copies)


async def check_kept(bench: Bench) -> None:
    """The primary may be lost together with a chain."""
    bench.generations = {1: 70, 2: 71, 3: 72}
    async with asyncio.timeout(10):
        while sorted(s.generation for s in (await bench.manager._store.load_generations())[0]) != [70, 71, 72]:  # type: ignore[union-attr]
            await asyncio.sleep(0.05)
    assert set(bench.states().values()) == {SERVING}


def test_what_is_seen_of_stores_is_kept_while_all_is_well() -> None:
    run(check_kept)
