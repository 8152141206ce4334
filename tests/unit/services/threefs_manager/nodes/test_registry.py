"""The rule by which a process may become a node: as a table, and at a manager."""

import asyncio
from contextlib import suppress

import pytest
from threefs_manager.nodes.failure_detector import FailureDetector
from threefs_manager.nodes.registry import check_incarnation, check_reports
from threefs_manager.service import Manager
from threefs_manager.store.cluster_store import read_cluster
from threefs_manager.store.restored_versions import unknown_domain

from tests.harness import beating_nodes
from tests.harness.chain_harness import until
from tests.harness.clocks import SteppedClock
from tests.harness.manager_bench import Bench, run
from tests.unit.services.threefs_manager.test_service import PLAN, beating, meta, plan, storage, version_of
from threefs import __version__
from threefs.cluster.manager_records import FIRST_ADDED_TARGET
from threefs.errors import InvalidArgument, NodeInUse, NotFound, StaleIncarnation, ThreefsError, Unavailable
from threefs.ids import NodeId
from threefs.routing import EMPTY, Node, NodeKind, PublicState
from threefs.wire import manager_pb2 as pb

T = 10.0
#: What was heard of the incarnation 8 at h:1, and how long ago.
ALIVE, FALLEN_SILENT, ENDED, ONLY_REGISTERED, UNHEARD, UNHEARD_FOR_T = range(6)


@pytest.mark.parametrize(
    ("heard", "kind", "address", "incarnation", "error"),
    [
        (ALIVE, pb.STORAGE, "h:1", 8, None),
        (ALIVE, pb.STORAGE, "h:1", 7, StaleIncarnation),
        (ALIVE, pb.STORAGE, "h:2", 8, StaleIncarnation),
        (ALIVE, pb.STORAGE, "h:1", 9, NodeInUse),
        (ALIVE, pb.STORAGE, "h:2", 9, NodeInUse),
        (ALIVE, pb.META, "h:1", 9, None),
        (ALIVE, pb.META, "h:2", 9, NodeInUse),
        (FALLEN_SILENT, pb.STORAGE, "h:2", 9, None),
        (FALLEN_SILENT, pb.STORAGE, "h:2", 7, StaleIncarnation),
        (ENDED, pb.STORAGE, "h:2", 9, None),
        (ENDED, pb.STORAGE, "h:1", 7, StaleIncarnation),
        (ONLY_REGISTERED, pb.STORAGE, "h:2", 9, None),
        (UNHEARD, pb.STORAGE, "h:1", 9, None),
        (UNHEARD, pb.STORAGE, "h:2", 9, NodeInUse),
        (UNHEARD, pb.META, "h:2", 9, NodeInUse),
        (UNHEARD_FOR_T, pb.STORAGE, "h:2", 9, None),
    ],
)
def test_registrations_that_become_nodes(
    heard: int, kind: pb.NodeKind, address: str, incarnation: int, error: type[ThreefsError] | None
) -> None:
    clock = SteppedClock()
    failure_detector = FailureDetector(clock)
    if heard in (ALIVE, FALLEN_SILENT, ENDED):
        failure_detector.on_heartbeat(1, 8, [], EMPTY)
    elif heard == ONLY_REGISTERED:
        failure_detector.on_register(1, 8)
    if heard == ENDED:
        failure_detector.mark_dead(1, 8)
    clock.advance(T if heard in (FALLEN_SILENT, UNHEARD_FOR_T) else T / 2)
    node = Node(NodeId(1), NodeKind(kind), "", "h:1", incarnation=8)
    request = pb.RegisterRequest(node_id=1, kind=kind, address=address, incarnation=incarnation)
    if error is None:
        check_incarnation(request, node, failure_detector, T)
    else:
        with pytest.raises(error):
            check_incarnation(request, node, failure_detector, T)


def test_the_first_process_of_a_node_is_taken() -> None:
    request = pb.RegisterRequest(node_id=1, kind=pb.STORAGE, address="h:1", incarnation=1)
    planned = Node(NodeId(1), NodeKind.STORAGE, "", address="", incarnation=0)
    check_incarnation(request, planned, FailureDetector(SteppedClock()), T)


# ---- a REGISTER that should not count


def test_a_late_register_does_not_put_out_the_process_that_lives() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        await manager.init(PLAN)
        await manager.register(storage(1, "h:1", 8))
        assert await beating(manager, 1, 8) == [101, 102]
        before = await version_of(manager)
        for address in ("h:1", "h:9"):
            with pytest.raises(StaleIncarnation, match="has registered with incarnation 8 at h:1; 7, of"):
                await manager.register(storage(1, address, 7))
        await manager.register(storage(1, "h:1", 8))  # its own, repeated
        assert await version_of(manager) == before
        assert await beating(manager, 1, 8) == [101, 102]

    run(body)


async def check_late_store(bench: beating_nodes.Bench) -> None:
    await asyncio.sleep(0.1)
    first = pb.RegisterRequest(
        node_id=1, kind=pb.STORAGE, address="h1:1", incarnation=1, stores=[pb.Store(target_id=101, store_id=5)]
    )
    del bench.living[1]
    await until(lambda: bench.states()[1] is PublicState.OFFLINE)
    bench.store_ids[1] = 6
    bench.living[1] = 1
    await until(lambda: bench.states()[1] is PublicState.SYNCING)
    bench.complete.add(1)
    await until(lambda: bench.states()[1] is PublicState.SERVING)
    await bench.manager.register(first)
    bench.living.clear()
    await until(lambda: set(bench.states().values()) == {PublicState.LASTSRV})
    await bench.register(1, 2, store_id=6)
    await until(lambda: bench.states()[1] is PublicState.SERVING)


def test_a_late_register_says_nothing_of_a_store_that_was_exchanged_since() -> None:
    """A damaged table is exchanged for an empty one while the process runs, and its target filled anew. When all had
    died, it was taken for one that has lost its disk."""
    beating_nodes.run(check_late_store)


def test_no_process_takes_the_place_of_a_node_that_lives() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        await manager.init(PLAN)
        for node in (1, 2, 3):
            await manager.register(storage(node, f"h:{node}", 8))
            assert await beating(manager, node, 8)
        before = await version_of(manager)
        for node, address in ((1, "h:9"), (1, "h:1"), (2, "x:5")):
            with pytest.raises(NodeInUse, match=f"node {node} is alive at h:{node}, so the process at {address}"):
                await manager.register(storage(node, address, 99))
        assert await version_of(manager) == before
        assert all([await beating(manager, node, 8) for node in (1, 2, 3)])

    run(body)


def test_a_node_that_has_been_silent_for_t_gives_way() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        await manager.init(plan("a", "b", "c", targets_per_disk=1))
        await manager.register(storage(1, "h:1", 8))
        assert await beating(manager, 1, 8)
        bench.clock.advance(9.9)
        with pytest.raises(NodeInUse, match="given up after 10 s"):
            await manager.register(storage(1, "h:9", 9))
        bench.clock.advance(0.2)
        await manager.register(storage(1, "h:9", 9))
        assert manager._publisher.routing.nodes[NodeId(1)].address == "h:9"

    run(body)


def test_a_node_that_left_in_order_gives_way_at_once() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        await manager.init(PLAN)
        await manager.register(storage(1, "h:1", 8))
        assert await beating(manager, 1, 8)
        assert not (await manager.heartbeat(pb.HeartbeatRequest(node_id=1, incarnation=8, leaving=True))).leased
        await manager.register(storage(1, "h:9", 9))
        assert manager._publisher.routing.nodes[NodeId(1)].incarnation == 9

    run(body)


async def hear_others(manager: Manager) -> None:
    """Before that, a new primary changes nothing, because its store may be a copy."""
    for node_id in (2, 3):
        with suppress(Unavailable):
            await manager.register(storage(node_id, f"h:{node_id}"))


def test_a_new_primary_waits_before_a_node_may_move() -> None:
    """Nothing has been heard of anybody: whoever registers at another address may be a double of one that lives."""

    async def body(bench: Bench, manager: Manager) -> None:
        of = (await manager.init(PLAN)).cluster_id
        await manager.register(storage(1, "h:1", 8))
        second = await bench.start()
        with pytest.raises(NodeInUse, match="may still be there"):
            await second.register(storage(1, "h:9", 9, cluster_id=of))
        await hear_others(second)
        assert (await second.register(storage(1, "h:1", 9, cluster_id=of))).node_id == 1, (
            "where it was, its port says that it is gone"
        )
        third = await bench.start()
        bench.clock.advance(10.1)
        assert (await third.register(storage(1, "h:9", 10, cluster_id=of))).node_id == 1

    run(body)


def test_a_forged_register_is_answered_by_the_real_process() -> None:
    """It came while the real one was not known to live. That one hears of it, and registers anew at once."""

    async def body(bench: Bench, manager: Manager) -> None:
        of = (await manager.init(PLAN)).cluster_id
        await manager.register(storage(1, "h:1", 8))
        second = await bench.start()
        await hear_others(second)
        await second.register(storage(1, "h:1", 77, cluster_id=of))
        with pytest.raises(NotFound, match="started anew"):
            await beating(second, 1, 8)
        assert (await second.register(storage(1, "h:1", 78, cluster_id=of))).node_id == 1

    run(body)


def test_a_meta_service_may_restart_at_its_address_but_no_other_takes_it() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        await manager.init(PLAN)
        node = (await manager.register(meta("h:1", 11))).node_id
        await manager.heartbeat(pb.HeartbeatRequest(node_id=node, incarnation=11))
        with pytest.raises(NodeInUse):
            await manager.register(meta("evil:1", 12, node))
        with pytest.raises(StaleIncarnation):
            await manager.register(meta("h:1", 10))
        assert (await manager.register(meta("h:1", 13))).node_id == node

    run(body)


def test_a_node_cannot_report_more_unreachable_nodes_than_there_are() -> None:
    request = pb.HeartbeatRequest(node_id=1, incarnation=8, unreachable=[pb.UnreachablePeer(node_id=2)])
    with pytest.raises(InvalidArgument, match="cannot reach 1 nodes, and the cluster has 0"):
        check_reports(request, EMPTY)


def test_status_says_which_releases_run_and_keeps_no_more_than_the_beginning() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        await manager.init(PLAN)
        long = "9.8.7" + "x" * 1_000_000
        for node, release in ((1, "9.8.6"), (2, long)):
            request = storage(node, f"h:{node}")
            request.release = release
            await manager.register(request)
        found = await manager.get_status(pb.GetStatusRequest())
        assert found.manager_release == __version__
        assert [row.release for row in found.nodes] == ["9.8.6", long[:64], ""]
        await manager.heartbeat(pb.HeartbeatRequest(node_id=1, incarnation=7, release=long))  # also to the next primary
        found = await manager.get_status(pb.GetStatusRequest())
        assert [row.release for row in found.nodes] == [long[:64], long[:64], ""]

    run(body)


def test_status_says_what_each_node_runs_with_and_keeps_no_more_than_the_beginning() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        await manager.init(PLAN)
        await manager.register(storage(1, "h:1"))
        await manager.heartbeat(pb.HeartbeatRequest(node_id=1, incarnation=7))
        found = await manager.get_status(pb.GetStatusRequest())
        assert not found.nodes[0].HasField("configuration"), "an older release does not say it"
        assert found.manager_configuration.version == found.configuration.version == 0
        key = pb.KeyReport(name="n" * 1000, value="v" * 1000, state=pb.REFUSED, reason="r" * 10_000)
        report = pb.ConfigurationReport(version=3, made_ns=5, keys=[key] * 10_000)
        await manager.heartbeat(pb.HeartbeatRequest(node_id=1, incarnation=7, configuration=report))
        kept = (await manager.get_status(pb.GetStatusRequest())).nodes[0].configuration
        assert (kept.version, kept.made_ns, len(kept.keys)) == (3, 5, 256)
        assert (len(kept.keys[0].name), len(kept.keys[0].value), len(kept.keys[0].reason)) == (64, 64, 1024)

    run(body)


def test_status_says_which_stray_stores_a_node_has_and_keeps_no_more_than_the_first() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        await manager.init(PLAN)
        await manager.register(storage(1, "h:1"))
        strays = pb.StrayStores(targets=range(1, 5000), bytes=7)
        await manager.heartbeat(pb.HeartbeatRequest(node_id=1, incarnation=7, stray_stores=strays))
        kept = (await manager.get_status(pb.GetStatusRequest())).nodes[0].stray_stores
        assert (list(kept.targets), kept.bytes) == (list(range(1, 1025)), 7)
        await manager.heartbeat(pb.HeartbeatRequest(node_id=1, incarnation=7))
        assert not (await manager.get_status(pb.GetStatusRequest())).nodes[0].HasField("stray_stores")

    run(body)


def test_no_number_of_a_target_is_given_out_that_a_process_knows_which_was_not_asked() -> None:
    """It was away when the restored manager asked, or it was removed, and joins again with its disk."""
    far = FIRST_ADDED_TARGET + 100_000

    async def body(bench: Bench, manager: Manager) -> None:
        await manager.init(PLAN)
        for incarnation, known in enumerate((far, 0, far - 7, (1 << 32) - 1), 7):
            request = storage(1, "h:1", incarnation)
            request.highest_target = known
            await manager.register(request)
            before = await version_of(manager)
            await manager.register(request)
            assert await version_of(manager) == before, "a repeat wakes nobody"
        assert (await read_cluster(bench.engine.begin())).next_target == far

    run(body)


def test_a_storage_process_says_its_domain_only_where_a_restored_store_does_not_know_it() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        await manager.init(PLAN)
        node = pb.PlannedNode(node_id=4, domain=unknown_domain(4))
        await manager.add_nodes(pb.AddNodesRequest(storage=[node]))
        found = []
        for incarnation, domain in enumerate(["", "rack-2", "", "rack-3"], 7):
            request = storage(4, "h:4", incarnation)
            request.domain = domain
            await manager.register(request)
            found.append(manager._publisher.routing.nodes[NodeId(4)].domain)
        assert found == ["unknown-4", "rack-2", "rack-2", "rack-2"]

    run(body)
