"""Chains change when their targets die, return and catch up."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from threefs_manager.chains.controller import ChainController
from threefs_manager.chains.resync_progress import STALLED_LEASES
from threefs_manager.election import Epoch
from threefs_manager.nodes.failure_detector import FailureDetector
from threefs_manager.routing_publisher import RoutingPublisher
from threefs_manager.stale_stores.manager_store import StaleStoreDetector
from threefs_manager.store.cluster_store import Store, Writer

from tests.harness.beating_nodes import Bench, run
from tests.harness.chain_harness import until
from tests.harness.clocks import SteppedClock
from tests.harness.silent_engine import SilentEngine
from tests.harness.terms import take
from tests.harness.virtual_time import LOOP_CLOCK, run_virtual
from threefs.background import cancel_and_wait
from threefs.cluster.manager_records import CHAIN
from threefs.errors import InvalidArgument, NotFound, Unavailable
from threefs.ids import ChainId, NodeId, TargetId
from threefs.kv.memory import MemoryEngine
from threefs.kv.transaction import BufferedTransaction
from threefs.routing import Chain, ChainMember, PublicState, Target
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


# ---- transactions that fail, one way or the other


class Moody(MemoryEngine):
    """Fails the next transactions that change chains."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 0  # they do nothing
        self.unknown = 0  # they happen, and nobody is told
        self.meanwhile: Callable[[], Awaitable[None]] | None = None  # while nobody has been told yet
        self.committed: list[int] = []  # how many chains each changed

    async def commit(self, attempt: BufferedTransaction) -> None:
        chains = sum(key.startswith(b"CHAI") for key in attempt.writes)
        if chains and self.lost:
            self.lost -= 1
            raise Unavailable("the store is away")
        await super().commit(attempt)
        if chains:
            self.committed.append(chains)
        if chains and self.unknown:
            self.unknown -= 1
            if self.meanwhile is not None:
                await self.meanwhile()
            raise Unavailable("no answer")


class Desk:
    """A chain controller by itself over `count` chains of two targets each: one on node 1, one on node 2."""

    def __init__(self, engine: Moody, epoch: Epoch, count: int) -> None:
        self.engine, self.count, self.clock = engine, count, SteppedClock()
        self.store, self.publisher = Store(engine, epoch), RoutingPublisher()
        self.failure_detector = FailureDetector(self.clock)
        self.changes: list[tuple[Chain, Chain]] = []
        detector = StaleStoreDetector(0)
        detector.confirmed = True
        self.controller = ChainController(
            self.store,
            self.publisher,
            self.failure_detector,
            detector,
            clock=self.clock,
            on_change=lambda before, after: self.changes.append((before, after)),
        )

    async def plan(self) -> None:
        targets = [
            Target(TargetId(node * 10_000 + n), NodeId(node), ChainId(n), 5)
            for n in range(1, self.count + 1)
            for node in (1, 2)
        ]
        chains = [
            Chain(ChainId(n), 1, tuple(ChainMember(TargetId(node * 10_000 + n), SERVING) for node in (1, 2)))
            for n in range(1, self.count + 1)
        ]

        async def write(writer: Writer) -> None:
            writer.cluster.lease_ms = 10_000_000  # nobody dies by silence here
            writer.put_chains(chains, targets)

        _, routing = await self.store.change(write)
        self.publisher.start_term(routing, 1)
        self.engine.committed.clear()

    def heartbeat(self, node: int) -> int:
        """How many leases the node gets when it knows everything."""
        self.clock.advance(0.001)
        routing = self.publisher.routing
        reports = [
            pb.TargetReport(
                target_id=node * 10_000 + n,
                chain_version=routing.chains[ChainId(n)].version,
                local_state=pb.LOCAL_UPTODATE,
                store_id=5,
            )
            for n in range(1, self.count + 1)
        ]
        leased, changed = self.failure_detector.on_heartbeat(node, 1, reports, routing)
        self.controller.enqueue(changed)
        return len(leased)

    def served_by(self, node: int) -> int:
        chains = self.publisher.routing.chains.values()
        return sum(chain.state(TargetId(node * 10_000 + chain.chain_id)) is SERVING for chain in chains)


def at_desk(count: int, body: Callable[[Desk], Awaitable[None]]) -> None:
    async def main() -> None:
        engine = Moody()
        desk = Desk(engine, await take(engine, "one"), count)
        await desk.plan()
        assert desk.heartbeat(1) == desk.heartbeat(2) == count
        running = asyncio.create_task(desk.controller.run())
        async with asyncio.timeout(20):
            await desk.controller.wait_idle(10)
            await body(desk)
        await cancel_and_wait(running)

    run_virtual(main())


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
