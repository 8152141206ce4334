"""An older copy of the manager's store is known by what nodes have seen, and cannot count up to it."""

import asyncio
import copy
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from threefs_manager.configuration_versions import ConfigurationKeeper
from threefs_manager.stale_stores.manager_store import StaleStoreDetector
from threefs_manager.store.cluster_store import Store
from threefs_manager.store.restore_inquiry import Inquiry

from tests.harness.clocks import SteppedClock
from tests.harness.manager_bench import Bench
from tests.unit.services.threefs_manager.test_service import PLAN, meta, storage
from threefs.errors import NodeInUse, NotFound, NotPrimary, StaleIncarnation, StrangeStore, Unavailable
from threefs.ids import ChainId, NodeId, TargetId
from threefs.routing import EMPTY, Chain, ChainMember, PublicState, Target
from threefs.rpc.methods import Method
from threefs.wire import manager_pb2 as pb

SERVING, SYNCING, LASTSRV, OFFLINE = PublicState.SERVING, PublicState.SYNCING, PublicState.LASTSRV, PublicState.OFFLINE


def detector_of(*states: PublicState) -> tuple[StaleStoreDetector, SteppedClock]:
    """Of a store at version 7, in which targets of nodes 1, 2, ... are in these states in a chain."""
    members = tuple(ChainMember(TargetId(100 * node + 1), state) for node, state in enumerate(states, 1))
    targets = {m.target_id: Target(m.target_id, NodeId(m.target_id // 100), ChainId(1)) for m in members}
    routing = replace(
        EMPTY, version=7, lease_ms=10_000, targets=targets, chains={ChainId(1): Chain(ChainId(1), 1, members)}
    )
    clock = SteppedClock()
    return StaleStoreDetector(routing, clock), clock


def beat(version: int, node_id: int = 1) -> pb.HeartbeatRequest:
    return pb.HeartbeatRequest(node_id=node_id, incarnation=7, routing_version=version)


def test_what_a_term_has_given_out_itself_is_no_news() -> None:
    detector, _ = detector_of()
    assert not detector.confirmed
    detector.check(beat(7), keeps_chains=True)
    assert detector.confirmed
    detector.on_published(9)
    detector.on_published(8)
    detector.check(beat(9), keeps_chains=True)
    with pytest.raises(StrangeStore, match="node 1 has seen version 10 of the routing, and the store had 9"):
        detector.check(beat(10), keeps_chains=True)


def test_what_an_older_copy_counts_by_itself_makes_it_no_newer() -> None:
    detector, _ = detector_of()  # it has changed chains since, and is at 12, but nobody was told
    with pytest.raises(StrangeStore):
        detector.check(beat(9), keeps_chains=True)
    assert not detector.confirmed


def test_after_one_node_knew_a_newer_version_no_client_is_served_and_nothing_changes() -> None:
    detector, _ = detector_of()
    detector.check(beat(0), keeps_chains=True)
    detector.check_fresh()
    with pytest.raises(StrangeStore):
        detector.check(beat(8), keeps_chains=True)
    with pytest.raises(StrangeStore):
        detector.check(beat(0), keeps_chains=True)
    with pytest.raises(StrangeStore, match="threefs restore"):
        detector.check_fresh()


def test_one_that_was_away_says_nothing_of_the_age_of_the_store() -> None:
    """Chains were changed for it, up to the versions that the others had from the newer store. Then nothing told the
    two stores apart any more, and the newer one was refused when it was put back."""
    detector, _ = detector_of(SERVING, SERVING)
    detector.check(beat(3), keeps_chains=True)
    assert not detector.confirmed
    assert detector.on_published(8) == 0, "what the copy makes of it must not look newer than the right store"
    with pytest.raises(StrangeStore, match="node 2 has seen version 8 of the routing, and the store had 7"):
        detector.check(beat(8, node_id=2), keeps_chains=True)


def test_all_that_serve_are_waited_for_until_t_has_passed() -> None:
    detector, clock = detector_of(SERVING, SERVING)
    detector.check(beat(7), keeps_chains=True)
    clock.advance(9.9)
    assert not detector.confirmed
    clock.advance(0.2)
    assert detector.confirmed and detector.on_published(8) == 8
    detector, _ = detector_of(SERVING, SERVING)
    detector.check(beat(7), keeps_chains=True)
    detector.check(beat(7, node_id=2), keeps_chains=True)
    assert detector.confirmed
    detector, _ = detector_of(SERVING, SERVING)
    detector.check(beat(7), keeps_chains=True)
    detector.on_heard(2)
    assert detector.confirmed
    detector, clock = detector_of(SERVING, SERVING)
    clock.advance(60)
    assert not detector.confirmed, "nobody has said anything"


def test_a_lease_that_has_lapsed_is_renewed_only_after_those_that_would_know_were_heard() -> None:
    """A process that was paused knew as little as an older copy, which gave it its lease again at once: it answered
    reads of a chain that had gone on without it."""
    detector, clock = detector_of(SERVING, SERVING)
    lapsed, others = [pb.TargetReport(target_id=t, lease_lapsed=t == 101) for t in (101, 102)], [TargetId(102)]
    request = pb.HeartbeatRequest(node_id=1, targets=lapsed)
    detector.check(request, keeps_chains=True)
    both = [TargetId(101), *others]
    assert detector.renewable(both, request) == others
    assert detector.renewable(both, beat(7)) == both, "an older program does not say it"
    detector.on_heard(2)
    assert detector.renewable(both, request) == both
    detector, clock = detector_of(SERVING, SERVING)
    clock.advance(10.1)
    assert detector.renewable(both, request) == both, "one that is dead holds up nobody for longer than T"


def test_no_lease_waits_for_a_disk_that_nobody_serves_without() -> None:
    """A chain had lost its only disk, and all leases of the cluster waited for that one after each failover."""
    detector, _ = detector_of(LASTSRV)
    detector.on_heard(2)
    request = pb.HeartbeatRequest(node_id=2, targets=[pb.TargetReport(target_id=201, lease_lapsed=True)])
    assert detector.renewable([TargetId(201)], request) == [201] and not detector.confirmed


def test_those_that_served_last_are_waited_for_where_none_serves() -> None:
    """The store was copied while all storage processes were stopped. One of them that has not run since was the first
    to come back, and served with what it had, though others had served without it in the meantime."""
    detector, clock = detector_of(LASTSRV, LASTSRV)
    detector.check(beat(7), keeps_chains=True)
    assert not detector.confirmed
    with pytest.raises(StrangeStore):
        detector.check(beat(8, node_id=2), keeps_chains=True)
    detector, clock = detector_of(LASTSRV, LASTSRV)
    detector.check(beat(7), keeps_chains=True)
    clock.advance(10.1)
    assert detector.confirmed, "a disk that is lost for good holds up nothing for longer than T"


@pytest.mark.parametrize("states", [(SERVING, SYNCING), (LASTSRV, OFFLINE)])
def test_those_that_may_have_gone_on_alone_are_waited_for(states: tuple[PublicState, ...]) -> None:
    """The newer store had let the second one serve without the first, which ended before it heard of that: when it was
    full, or with `threefs chain accept-loss`. The first one confirmed the copy, and served with what it had."""
    detector, clock = detector_of(*states)
    detector.check(beat(7), keeps_chains=True)
    assert not detector.confirmed
    clock.advance(10.1)
    assert detector.confirmed


def test_those_that_only_come_back_by_one_that_serves_are_not_waited_for() -> None:
    detector, _ = detector_of(SERVING, OFFLINE)
    detector.check(beat(7), keeps_chains=True)
    assert detector.confirmed


def test_time_in_which_nobody_could_be_heard_does_not_count() -> None:
    """A manager that was suspended just after its start had waited for nobody."""
    detector, clock = detector_of(SERVING, SERVING)
    clock.advance(10.1)
    detector.on_suspension(10.05)
    detector.check(beat(7), keeps_chains=True)
    assert not detector.confirmed
    clock.advance(10.1)
    assert detector.confirmed
    detector.on_suspension(0.05)
    assert detector.confirmed, "T had passed before"


async def test_what_an_administrator_changes_waits_on_after_a_suspension() -> None:
    detector, clock = detector_of(SERVING, SERVING)
    clock.advance(9.98)
    waiting = asyncio.ensure_future(detector.wait_heard())
    await asyncio.sleep(0)
    clock.advance(0.02)
    detector.on_suspension(9.0)
    await asyncio.sleep(0.05)
    assert not waiting.done()
    detector.check(beat(7), keeps_chains=True)
    detector.check(beat(7, node_id=2), keeps_chains=True)
    await waiting


_NODES = ((1, "a"), (2, "b"), (3, "c"))  # of the plan, and their failure domains


class Handlers(dict[str, Callable[[Any], Awaitable[Any]]]):
    """A server that is called without a network."""

    def serve(self, method: Method[Any, Any], handler: Callable[[Any], Awaitable[Any]]) -> None:
        self[method.name] = handler


async def test_what_an_administrator_changes_waits_until_all_that_serve_were_heard() -> None:
    """A node was added to a copy, which ended a moment later. Nobody added it to the right store (seed 4732)."""
    bench = Bench()
    await (await bench.start()).init(PLAN)
    await bench.stop()  # else it takes the term back on a busy machine
    manager = await bench.start()
    manager.bind(handlers := Handlers())
    known, new = ([pb.PlannedNode(node_id=n, domain=domain) for n, domain in pairs] for pairs in (_NODES, [(4, "d")]))
    assert not (await handlers["AddNodes"](pb.AddNodesRequest(storage=known))).new_nodes, "`threefs up` need not wait"
    asked = [
        asyncio.ensure_future(handlers["SetMinReplicas"](pb.SetMinReplicasRequest(min_replicas=1, table_id=1))),
        asyncio.ensure_future(handlers["AddNodes"](pb.AddNodesRequest(storage=new))),
    ]
    given_up = asyncio.ensure_future(handlers["AddNodes"](pb.AddNodesRequest(storage=[pb.PlannedNode(node_id=5)])))
    await asyncio.sleep(0.02)
    given_up.cancel()
    for node_id, _ in _NODES:
        await asyncio.sleep(0.02)
        assert not any(call.done() for call in asked)
        with suppress(Unavailable):  # the last one registers
            await manager.register(storage(node_id, f"h:{node_id}"))
    await asyncio.gather(*asked)
    assert sorted(manager._publisher.routing.nodes) == [1, 2, 3, 4]
    await bench.stop()


async def test_a_restored_metadata_store_gets_no_epoch_of_a_copy() -> None:
    """The newer store had given the epoch to another restored one: inode numbers would have been given out twice."""
    bench = Bench()
    cluster_id = (await (await bench.start()).init(PLAN)).cluster_id
    await bench.stop()
    manager = await bench.start()  # on the copy
    manager.bind(handlers := Handlers())
    request = pb.AdmitStoreRequest(cluster_id=cluster_id, store_id="aa", generation=5)
    assert (await handlers["AdmitStore"](request)).epoch == 0, "who serves already need not wait"
    request.restored, request.restore_id = True, "r"
    waiting = asyncio.ensure_future(handlers["AdmitStore"](request))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    for node_id, _ in _NODES:
        with suppress(Unavailable):  # the last one registers
            await manager.register(storage(node_id, f"h:{node_id}", cluster_id=cluster_id))
    assert (await waiting).epoch == 1
    await bench.stop()


async def test_a_change_whose_term_ended_while_it_waited_is_not_made_in_the_next() -> None:
    """There nobody may have been heard yet."""
    bench = Bench()
    manager = await bench.start()
    await manager.init(PLAN)
    manager.bind(handlers := Handlers())

    async def next_term() -> None:
        manager._store = copy.copy(manager._store)

    manager._stale_store.wait_heard = next_term  # type: ignore[method-assign]
    with pytest.raises(NotPrimary):
        await handlers["SetMinReplicas"](pb.SetMinReplicasRequest(min_replicas=1, table_id=1))
    await bench.stop()


async def test_a_change_that_waits_hears_at_once_that_the_term_has_ended() -> None:
    """It waited on for up to T, though another manager was primary."""
    bench = Bench()
    await (await bench.start()).init(PLAN)
    await bench.stop()
    manager = await bench.start()
    manager.bind(handlers := Handlers())
    request = pb.SetMinReplicasRequest(min_replicas=1, table_id=1)
    waiting = asyncio.ensure_future(handlers["SetMinReplicas"](request))
    await asyncio.sleep(0.02)
    await bench.stop()
    with pytest.raises(NotPrimary):
        async with asyncio.timeout(5):
            await waiting


async def test_time_in_which_the_store_did_not_answer_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new primary read it for longer than T. Then it took all for dead of which it had not heard in the first moment,
    and needed nobody but the first node to believe its store."""
    bench = Bench()
    manager = await bench.start()
    await manager.init(PLAN)
    for node_id, _ in _NODES:
        await manager.register(storage(node_id, f"h:{node_id}"))
    start_term = ConfigurationKeeper.start_term

    async def after_a_while(self: ConfigurationKeeper, store: Store) -> None:
        bench.clock.advance(10.1)
        await start_term(self, store)

    await bench.stop()
    monkeypatch.setattr(ConfigurationKeeper, "start_term", after_a_while)
    manager = await bench.start()
    await manager.heartbeat(beat(0))
    assert not manager._stale_store.confirmed
    assert not manager._failure_detector.is_silent(2, 10.0)
    await bench.stop()


async def test_no_change_of_an_administrator_waits_for_longer_than_t() -> None:
    detector, clock = detector_of(SERVING, SERVING)
    clock.advance(9.98)
    async with asyncio.timeout(5):
        await detector.wait_heard()


async def test_a_backup_gets_no_store_that_nobody_has_confirmed() -> None:
    """An empty store, or an older copy, would take the place of what the backup has of the right one."""
    detector, clock = detector_of(SERVING, SERVING)
    asked = asyncio.create_task(detector.wait_confirmed("c", None))
    detector.on_heard(1)
    await asyncio.sleep(0.01)
    assert not asked.done(), "the other one may know more"
    detector.on_heard(2)
    await asked
    for cluster_id in ("", "c"):  # before `init`, and where no node is there for T
        nobody, clock = detector_of(SERVING)
        clock.advance(10.1)
        if not cluster_id:
            nobody.on_heard(1)
        with pytest.raises(Unavailable, match="no node has confirmed"):
            await nobody.wait_confirmed(cluster_id, None)
    with pytest.raises(Unavailable, match="awaited: none"):
        await detector.wait_confirmed("c", Inquiry(EMPTY, clock))
    with pytest.raises(StrangeStore):
        detector.check(beat(9), keeps_chains=True)
    with pytest.raises(StrangeStore):
        await detector.wait_confirmed("c", None)


async def test_a_manager_gives_its_store_to_a_backup_when_a_node_was_heard() -> None:
    bench = Bench()
    manager = await bench.start()
    with pytest.raises(Unavailable):
        await manager.wait_own_store()
    cluster_id = (await manager.init(PLAN)).cluster_id
    await manager.register(storage(1, "h:1", cluster_id=cluster_id))
    await manager.wait_own_store()
    await bench.stop()
    with pytest.raises(NotPrimary):
        await manager.wait_own_store()


async def test_a_manager_with_an_older_copy_of_its_store_grants_nothing() -> None:
    """A node has been told of a version of the routing that the store does not have."""
    bench = Bench()
    manager = await bench.start()
    cluster_id = (await manager.init(PLAN)).cluster_id
    request = storage(1, "h:1", cluster_id=cluster_id)
    version = (await manager.register(request)).routing.version
    request.routing_version = version
    await manager.register(request)
    beat = pb.HeartbeatRequest(node_id=1, incarnation=7, routing_version=version)
    assert (await manager.heartbeat(beat)).routing_version == version
    request.routing_version = beat.routing_version = version + 1
    with pytest.raises(StrangeStore, match=r"older copy: node 1 has seen version.*threefs restore"):
        await manager.register(request)
    with pytest.raises(StrangeStore):
        await manager.heartbeat(beat)
    beat.routing_version = version
    with pytest.raises(StrangeStore):
        await manager.heartbeat(beat)  # whoever asks: the store is what it is
    with pytest.raises(StrangeStore):
        await bench._running[0]  # the term ends, and with it the process


async def test_a_store_that_keeps_a_newer_chain_tells_an_older_copy() -> None:
    bench = Bench()
    manager = await bench.start()
    cluster_id = (await manager.init(PLAN)).cluster_id
    request = storage(1, "h:1", cluster_id=cluster_id)
    request.stores.add(target_id=101, store_id=7, kept=pb.KeptChain(chain=pb.Chain(chain_id=1, version=1)))
    await manager.register(request)
    request.stores[0].kept.chain.version = 2
    with pytest.raises(StrangeStore, match=r"older copy: target 101 of node 1 has seen version 2 of chain 1"):
        await manager.register(request)
    with pytest.raises(StrangeStore):
        await bench._running[0]


async def test_a_target_that_acts_in_a_newer_chain_tells_an_older_copy_that_has_counted_up_over_terms() -> None:
    """Each new primary took what those before it had counted for what the store had. A manager that had ended because
    of a copy was started anew, and the copy was believed: its version was that of the newer store by then."""
    bench = Bench()
    manager = await bench.start()
    cluster_id = (await manager.init(PLAN)).cluster_id
    for node_id, _ in _NODES:
        version = (await manager.register(storage(node_id, f"h:{node_id}", cluster_id=cluster_id))).routing.version
    await bench.stop()
    manager = await bench.start()  # on the copy; the newer store has changed a chain in the next version
    bench.clock.advance(10.1)  # no storage process is there for so long
    await manager.register(meta("h:9", 3))
    with pytest.raises(StrangeStore):
        await manager.heartbeat(beat(version + 1))
    with pytest.raises(StrangeStore):
        await bench._running[-1]
    manager = await bench.start()
    request = beat(version + 1)
    request.targets.add(target_id=101, chain_version=2, local_state=pb.LOCAL_UPTODATE)
    with pytest.raises(StrangeStore, match=r"older copy: target 101 of node 1 has seen version 2 of chain 1.* has 1"):
        await manager.heartbeat(request)
    with pytest.raises(StrangeStore):
        await bench._running[-1]


async def test_only_a_node_of_this_cluster_can_have_seen_a_newer_store() -> None:
    """Any other process that reaches the port would end the manager with one message."""
    bench = Bench()
    manager = await bench.start()
    await manager.init(PLAN)
    request = storage(1, "h:1")
    request.routing_version = 1 << 40
    request.stores.add(target_id=101, store_id=7, kept=pb.KeptChain(chain=pb.Chain(chain_id=1, version=1 << 20)))
    await manager.register(request)
    beat = pb.HeartbeatRequest(node_id=1, incarnation=8, routing_version=1 << 40)
    with pytest.raises(NotFound):
        await manager.heartbeat(beat)
    beat = pb.HeartbeatRequest(node_id=1, incarnation=7)
    await manager.heartbeat(beat)
    await bench.stop()


async def test_a_meta_service_that_is_new_says_nothing_of_the_age_of_the_store() -> None:
    """It was the first that was heard. Chains were changed for it, up to the version in which the newer store has them,
    and a target that was put out there served with old bytes."""
    bench = Bench()
    cluster_id = (await (await bench.start()).init(PLAN)).cluster_id
    manager = await bench.start()  # the copy; the newer store has put target 201 out of its chain
    bench.clock.advance(10.1)
    joined = await manager.register(meta("h:9", 3))
    beat = pb.HeartbeatRequest(node_id=joined.node_id, incarnation=3, routing_version=joined.routing.version)
    for _ in range(3):
        bench.clock.advance(10.1)
        await manager.heartbeat(beat)
        assert manager._controller is not None
        manager._controller.enqueue(manager._publisher.routing.chains)
        await asyncio.sleep(0.02)
    assert all(chain.version == 1 for chain in manager._publisher.routing.chains.values())
    request = storage(1, "h:1", cluster_id=cluster_id)
    request.routing_version = joined.routing.version
    request.stores.add(target_id=101, store_id=7, kept=pb.KeptChain(chain=pb.Chain(chain_id=1, version=2)))
    with pytest.raises(StrangeStore):
        await manager.register(request)
    await bench.stop()


async def test_nobody_registers_before_all_that_serve_were_heard() -> None:
    """A new meta service raised the version of a copy that lacked a node. The primary ended, and the next one took the
    copy for the newest store: its version was that of the right one."""
    bench = Bench()
    manager = await bench.start()
    await manager.init(PLAN)
    joined = await manager.register(meta("h:9", 3))
    manager = await bench.start()
    version = manager._publisher.routing.version
    left = [f"storage nodes {nodes}$" for nodes in ("1, 2, 3", "1, 2, 3", "2, 3", "3")]
    news = [meta("h:8", 3), meta("h:9", 4, joined.node_id), storage(1, "h:1"), storage(2, "h:2")]
    for new, nodes in zip(news, left, strict=True):
        with pytest.raises(Unavailable, match=nodes):
            await manager.register(new)
    assert manager._publisher.routing.version == version
    for new in (storage(3, "h:3"), *news):
        await manager.register(new)
    await bench.stop()


async def test_who_is_refused_as_another_process_of_a_node_is_not_that_node() -> None:
    """A copy of a disk, or an empty one, was started elsewhere with the number of a node that would have known of a
    newer store. It was refused, and its node taken for heard: the copy took the registration of a new node."""
    bench = Bench()
    manager = await bench.start()
    cluster_id = (await manager.init(PLAN)).cluster_id
    for node_id, _ in _NODES:
        version = (await manager.register(storage(node_id, f"h:{node_id}", 7, cluster_id))).routing.version
    manager = await bench.start()  # on the copy; the newer store has the next version
    await manager.heartbeat(beat(0))
    for node_id, incarnation, belongs_to in ((2, 8, cluster_id), (3, 8, ""), (3, 6, cluster_id)):
        with pytest.raises((NodeInUse, StaleIncarnation)):
            await manager.register(storage(node_id, "elsewhere:9", incarnation, belongs_to))
    with pytest.raises(Unavailable, match=r"storage nodes 2, 3$"):
        await manager.register(meta("h:9", 3))
    with pytest.raises(StrangeStore):
        await manager.heartbeat(beat(version + 1, node_id=2))
    await bench.stop()


async def test_one_that_has_seen_this_store_before_the_term_confirms_it() -> None:
    bench = Bench()
    first = await bench.start()
    await first.init(PLAN)
    await first.register(storage(1, "h:1"))
    joined = await first.register(meta("h:9", 3))
    manager = await bench.start()
    bench.clock.advance(10.1)
    assert not manager._stale_store.confirmed
    version = joined.routing.version
    await manager.heartbeat(pb.HeartbeatRequest(node_id=joined.node_id, incarnation=3, routing_version=version))
    assert manager._stale_store.confirmed
    await bench.stop()
