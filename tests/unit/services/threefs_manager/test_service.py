import asyncio
import dataclasses
from typing import Any, cast

import pytest
from structlog.testing import capture_logs
from threefs_manager.service import Manager

from tests.harness.manager_bench import Bench, run
from threefs import routing as routing_module
from threefs.background import cancel_and_wait
from threefs.cluster.manager_records import FIRST_META_NODE
from threefs.env.net import RealNet
from threefs.errors import (
    AlreadyExists,
    ConnectionLost,
    Fenced,
    InvalidArgument,
    NotFound,
    NotPrimary,
    PeerClosed,
    StrangeStore,
    ThreefsError,
    Unavailable,
    WrongCluster,
)
from threefs.ids import NodeId
from threefs.wire import manager_pb2 as pb


def plan(*domains: str, replicas: int = 3, targets_per_disk: int = 2) -> pb.InitRequest:
    nodes = [pb.PlannedNode(node_id=number, domain=domain) for number, domain in enumerate(domains, start=1)]
    return pb.InitRequest(storage=nodes, replicas=replicas, targets_per_disk=targets_per_disk)


PLAN = plan("a", "b", "c")


def storage(node_id: int, address: str, incarnation: int = 7, cluster_id: str = "") -> pb.RegisterRequest:
    return pb.RegisterRequest(
        node_id=node_id, kind=pb.STORAGE, address=address, incarnation=incarnation, cluster_id=cluster_id
    )


def meta(address: str, incarnation: int, node_id: int = 0) -> pb.RegisterRequest:
    return pb.RegisterRequest(
        node_id=node_id, kind=pb.META, address=address, incarnation=incarnation, domain="somewhere"
    )


async def version_of(manager: Manager) -> int:
    return (await manager.get_status(pb.GetStatusRequest())).routing_version


async def check_routing(bench: Bench, manager: Manager) -> None:
    assert not (await manager.get_routing(pb.GetRoutingRequest())).HasField("routing"), "nothing is known before init"
    reply = await manager.init(PLAN)
    assert bench.clusters == [reply.cluster_id] and len(bytes.fromhex(reply.cluster_id)) == 16
    message = (await manager.get_routing(pb.GetRoutingRequest())).routing
    routing = routing_module.from_wire(message)
    assert (routing.version, routing.cluster_id) == (1, reply.cluster_id)
    assert [(n.node_id, n.domain) for n in routing.nodes.values()] == [(1, "a"), (2, "b"), (3, "c")]
    assert not any(n.address for n in routing.nodes.values())
    assert routing.tables == {1: (1, 2)} and set(routing.chains) == {1, 2}
    assert all(len(chain.serving) == 3 for chain in routing.chains.values())
    assert sorted(routing.targets) == [101, 102, 201, 202, 301, 302]


def test_init_makes_the_routing() -> None:
    run(check_routing)


async def check_same_plan(bench: Bench, manager: Manager) -> None:
    first = await manager.init(PLAN)
    backwards = pb.InitRequest(storage=reversed(PLAN.storage), replicas=3, targets_per_disk=2)
    assert await manager.init(PLAN) == await manager.init(backwards) == first
    assert await version_of(manager) == 1, "nobody who follows the routing is woken for it"
    assert await (await bench.start()).init(PLAN) == first


def test_the_same_plan_again_changes_nothing() -> None:
    run(check_same_plan)


@pytest.mark.parametrize(
    "other",
    [
        plan("a", "b", "c", replicas=1),
        plan("a", "b", "c", targets_per_disk=3),
        plan("a", "b", "d"),
        plan("a", "b", "c", "d", replicas=2),
    ],
)
def test_another_plan_is_refused_with_both_in_words(other: pb.InitRequest) -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        await manager.init(PLAN)
        words = r"another plan: 3 replicas, 2 targets per disk, 3 storage nodes \(1 in a, 2 in b, 3 in c\), not "
        with pytest.raises(AlreadyExists, match=words):
            await manager.init(other)
        assert await version_of(manager) == 1

    run(body)


def test_a_node_without_a_domain_is_one_of_its_own() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        first = await manager.init(plan("", "", ""))
        assert await manager.init(plan("node-1", "node-2", "node-3")) == first

    run(body)


def test_a_bad_plan_is_refused_and_a_good_one_still_taken() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        for bad in (plan("a", "b"), plan(), plan("x" * 256, "b", "c")):
            with pytest.raises(InvalidArgument):
                await manager.init(bad)
        assert await version_of(manager) == 0 and bench.clusters == []
        await manager.init(PLAN)

    run(body)


def test_registration_publishes_the_address_and_a_restart_keeps_it() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        made = await manager.init(PLAN)
        reply = await manager.register(storage(2, "h:2"))
        assert (reply.node_id, reply.cluster_id, reply.routing.version) == (2, made.cluster_id, 2)
        assert reply.routing.lease_ms == 10_000 and not reply.routing.chains, "all of it may have megabytes"
        node = manager._publisher.routing.nodes[NodeId(2)]
        assert (node.address, node.incarnation) == ("h:2", 7)
        assert node.domain == "b", "the plan says where it is"
        again = await manager.register(storage(2, "h:2", cluster_id=made.cluster_id))
        assert again.routing == reply.routing, "a repeated registration changes nothing"
        successor = await bench.start()
        status = await successor.get_status(pb.GetStatusRequest())
        assert (status.manager_epoch, status.cluster_id) == (2, made.cluster_id)
        assert status.nodes[1].node == routing_module.node_to_wire(node) and not status.nodes[1].alive
        assert bench.clusters == [made.cluster_id] * 2, "it knows its cluster from the start"
        with pytest.raises((Fenced, NotPrimary)):
            await manager.register(storage(1, "h:1"))

    run(body)


BAD_REGISTRATIONS: list[tuple[pb.RegisterRequest, type[ThreefsError], str]] = [
    (storage(9, "h:9"), NotFound, "no storage node 9"),
    (storage(0, "h:9"), NotFound, "no storage node 0"),
    (meta("h:9", 1, node_id=1), NotFound, "no meta node 1"),
    (meta("h:9", 1, node_id=FIRST_META_NODE + 5), NotFound, "no meta node"),
    (storage(1, "h:1", cluster_id="ab" * 16), WrongCluster, f"node 1 at h:1 belongs to cluster {'ab' * 16}"),
    (storage(1, ""), InvalidArgument, "is not an address"),
    (storage(1, "h"), InvalidArgument, "is not an address"),
    (storage(1, "h:x"), InvalidArgument, "is not an address"),
    (storage(1, "h:99999"), InvalidArgument, "is not an address"),
    (storage(1, "h:0"), InvalidArgument, "connect to"),
    (storage(1, "0.0.0.0:7"), InvalidArgument, "connect to"),
    (storage(1, "[::]:7"), InvalidArgument, "connect to"),
    (storage(1, "h" * 255 + ":1"), InvalidArgument, "255 characters"),
    (storage(1, "h:1", incarnation=0), InvalidArgument, "incarnation"),
    (pb.RegisterRequest(node_id=1, address="h:1", incarnation=1), InvalidArgument, "not as kind 0"),
    (pb.RegisterRequest(node_id=1, kind=77, address="h:1", incarnation=1), InvalidArgument, "not as kind 77"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("request_", "error", "text"), BAD_REGISTRATIONS)
def test_a_bad_registration_is_explained(request_: pb.RegisterRequest, error: type[ThreefsError], text: str) -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        await manager.init(PLAN)
        with pytest.raises(error, match=text):
            await manager.register(request_)
        assert await version_of(manager) == 1

    run(body)


def test_before_the_plan_a_node_is_asked_to_wait() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        with pytest.raises(Unavailable, match="no plan yet"):
            await manager.register(storage(1, "h:1"))

    run(body)


def addresses(manager: Manager) -> list[str]:
    return [node.address for node in manager._publisher.routing.nodes.values()]


def test_the_address_of_a_living_node_cannot_be_taken() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        await manager.init(PLAN)
        await manager.register(storage(1, "h:1"))
        with pytest.raises(AlreadyExists, match="node 1 lives at h:1"):
            await manager.register(storage(2, "h:1"))
        bench.clock.advance(11)
        await manager.register(storage(2, "h:1"))
        assert addresses(manager) == ["", "h:1", ""], "its port went to another"
        await manager.register(storage(1, "h:3", incarnation=8))
        assert addresses(manager) == ["h:3", "h:1", ""]

    run(body)


def test_meta_services_are_given_ids() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        await manager.init(PLAN)
        one = await manager.register(meta("h:1", 11))
        two = await manager.register(meta("h:2", 12))
        assert FIRST_META_NODE <= one.node_id < two.node_id
        assert (await manager.register(meta("h:1", 11))).node_id == one.node_id, "the answer was lost: asked again"
        assert (await manager.register(meta("h:1", 13))).node_id == one.node_id, "started again where it was"
        assert (await manager.register(meta("h:5", 14, two.node_id))).node_id == two.node_id, "it kept its id and moved"
        routing = routing_module.from_wire((await manager.get_routing(pb.GetRoutingRequest())).routing)
        assert routing.meta_addresses() == ("h:1", "h:5")
        assert routing.nodes[two.node_id].domain == "somewhere"  # type: ignore[index]

    run(body)


def test_heartbeats_tell_the_version_and_are_shown() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        await manager.init(PLAN)
        await manager.register(storage(2, "h:2"))
        report = pb.TargetReport(target_id=201, local_state=pb.LOCAL_ONLINE, capacity_bytes=10, used_bytes=4)
        reply = await manager.heartbeat(pb.HeartbeatRequest(node_id=2, incarnation=7, targets=[report]))
        assert reply.routing_version == 2
        bench.clock.advance(3)
        status = await manager.get_status(pb.GetStatusRequest())
        assert [node.alive for node in status.nodes] == [False, True, False]
        assert (status.nodes[1].silent_ms, list(status.nodes[1].targets)) == (3000, [report])
        assert len(status.chains) == 2

    run(body)


@pytest.mark.parametrize(
    ("heartbeat", "error", "text"),
    [
        (pb.HeartbeatRequest(node_id=9, incarnation=7), NotFound, "node 9 is not in the plan"),
        (pb.HeartbeatRequest(node_id=2, incarnation=6), NotFound, "started anew at"),
        (
            pb.HeartbeatRequest(node_id=2, incarnation=7, targets=[pb.TargetReport(target_id=101)]),
            InvalidArgument,
            "node 2 has no target 101",
        ),
    ],
)
def test_a_heartbeat_of_an_unknown_process_counts_for_no_node(
    heartbeat: pb.HeartbeatRequest, error: type[ThreefsError], text: str
) -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        await manager.init(PLAN)
        await manager.register(storage(2, "h:2"))
        bench.clock.advance(11)
        with pytest.raises(error, match=text):
            await manager.heartbeat(heartbeat)
        assert not any(node.alive for node in (await manager.get_status(pb.GetStatusRequest())).nodes)

    run(body)


def test_a_long_poll_ends_with_the_next_change() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        waiting = asyncio.create_task(manager.get_routing(pb.GetRoutingRequest(wait_ms=60_000)))
        await asyncio.sleep(0)
        await manager.init(PLAN)
        assert (await waiting).routing.version == 1
        assert not (await manager.get_routing(pb.GetRoutingRequest(known_version=1, wait_ms=1))).HasField("routing")

    run(body)


@pytest.mark.parametrize("seed", range(8))
async def test_registrations_survive_conflicts_and_unknown_commits(seed: int) -> None:
    bench = Bench(conflict_rate=0.25, unknown_rate=0.25, seed=seed)
    manager = await bench.start()
    made = await manager.init(PLAN)
    metas = [manager.register(meta(f"m:{number}", number)) for number in range(1, 9)]
    disks = [manager.register(storage(number, f"s:{number}")) for number in (1, 2, 3)]
    replies = await asyncio.gather(*metas, *disks)
    assert len({reply.node_id for reply in replies}) == 11, "each start got one id"
    status = await (await bench.start()).get_status(pb.GetStatusRequest())
    assert status.cluster_id == made.cluster_id == bench.clusters[0]
    assert sorted(node.node.address for node in status.nodes) == sorted(
        [f"m:{number}" for number in range(1, 9)] + [f"s:{number}" for number in (1, 2, 3)]
    ), "and no record was left over by an attempt"
    await bench.stop()


def test_a_plan_of_thousands_of_disks_is_taken_and_remembered() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        big = plan(*(f"machine-{number // 10}" for number in range(3000)), replicas=3, targets_per_disk=1)
        first = await manager.init(big)
        assert await manager.init(big) == first
        assert len((await manager.get_status(pb.GetStatusRequest())).chains) == 1000
        big.storage[2999].domain = "elsewhere"
        with pytest.raises(AlreadyExists, match=r"3000 storage nodes \(1 in machine-0, .*, \.\.\.\)"):
            await manager.init(big)

    run(body)


@pytest.mark.parametrize(("domains", "warned"), [("aab", ["a"]), ("abc", None)])
def test_domains_that_must_hold_two_targets_of_a_chain_are_logged(domains: str, warned: list[str] | None) -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        with capture_logs() as logs:
            await manager.init(plan(*domains))
            await manager.init(plan(*domains))
        assert [entry["domains"] for entry in logs] == ([warned] if warned else [])

    run(body)


# ---- a process that was started anew


def starting(incarnation: int, store_id: int = 5) -> pb.RegisterRequest:
    request = storage(1, "h:1", incarnation)
    request.stores.add(target_id=101, store_id=store_id)
    return request


def test_r8_a_new_incarnation_is_refused_while_the_old_one_is_still_in_its_chain() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        await manager.init(plan("a", "b", "c", targets_per_disk=1))
        await manager.register(starting(7))
        await manager.register(starting(7))
        with pytest.raises(Unavailable, match="target 101 of node 1 is still serving"):
            await manager.register(starting(8))  # nobody else has been heard of: nobody may be put out
        status = await manager.get_status(pb.GetStatusRequest())
        assert status.nodes[0].node.incarnation == 7, "the old one is still the one that counts"
        beat = pb.HeartbeatRequest(node_id=1, incarnation=7)
        beat.targets.add(target_id=101, chain_version=1, local_state=pb.LOCAL_UPTODATE)
        with pytest.raises(NotFound, match="taken for dead"):  # whatever still comes of it
            await manager.heartbeat(beat)
        await manager.register(storage(2, "h:2"))
        bench.clock.advance(0.1)
        beat = pb.HeartbeatRequest(node_id=2, incarnation=7)
        beat.targets.add(target_id=201, chain_version=1, local_state=pb.LOCAL_UPTODATE)
        assert list((await manager.heartbeat(beat)).leased) == [201]
        await _registered(manager, starting(8))
        assert manager._publisher.routing.nodes[NodeId(1)].incarnation == 8

    run(body)


async def _registered(manager: Manager, request: pb.RegisterRequest) -> pb.RegisterReply:
    while True:
        try:
            return await manager.register(request)
        except Unavailable:
            await asyncio.sleep(0.005)


def test_targets_of_others_cannot_be_registered() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        await manager.init(PLAN)
        request = storage(1, "h:1")
        request.stores.add(target_id=201, store_id=5)
        with pytest.raises(NotFound, match="node 1 has no target 201"):
            await manager.register(request)

    run(body)


@dataclasses.dataclass
class Ended:
    request: pb.PresenceRequest
    lost: ThreefsError | None


async def beating(manager: Manager, node: int, incarnation: int) -> list[int]:
    """What a heartbeat of an up-to-date node is granted."""
    beat = pb.HeartbeatRequest(node_id=node, incarnation=incarnation)
    routing = manager._publisher.routing
    for target in routing.targets.values():
        if target.node_id == node:
            version = routing.chains[target.chain_id].version
            beat.targets.add(target_id=target.target_id, chain_version=version, local_state=pb.LOCAL_UPTODATE)
    return list((await manager.heartbeat(beat)).leased)


@pytest.mark.parametrize(
    ("lost", "listens", "over"),
    [
        (PeerClosed("it closed the connection"), False, True),
        (PeerClosed("something between has closed it"), True, False),
        (ConnectionLost("the network failed"), False, False),
        (None, False, False),
    ],
)
def test_only_a_process_that_closes_its_connection_and_listens_no_more_has_ended(
    lost: ThreefsError | None, listens: bool, over: bool
) -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        listener = await RealNet().listen("127.0.0.1", 0, lambda stream: stream.close())
        await manager.init(plan("a", "b", "c", targets_per_disk=1))
        await manager.register(storage(1, listener.address))
        assert await beating(manager, 1, 7) == [101]
        call = Ended(pb.PresenceRequest(node_id=1, incarnation=7), lost)
        present = asyncio.create_task(manager.presence(cast(Any, call)))
        await asyncio.sleep(0)
        assert not present.done()
        if not listens:
            listener.close()
        await cancel_and_wait(present)
        await manager._probes.join()
        status = await manager.get_status(pb.GetStatusRequest())
        assert (status.nodes[0].alive, status.nodes[0].ended) == (not over, over)
        if over:
            with pytest.raises(NotFound, match="taken for dead"):
                await beating(manager, 1, 7)
        else:
            assert await beating(manager, 1, 7) == [101]
        listener.close()

    run(body)


def test_presence_is_kept_only_of_the_newest_process_and_at_the_primary() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        await manager.init(plan("a", "b", "c", targets_per_disk=1))
        await manager.register(storage(1, "h:1"))
        with pytest.raises(NotFound, match="started anew"):
            await manager.presence(cast(Any, Ended(pb.PresenceRequest(node_id=1, incarnation=6), None)))
        call = Ended(pb.PresenceRequest(node_id=1, incarnation=7), None)
        present = asyncio.create_task(manager.presence(cast(Any, call)))
        await asyncio.sleep(0)
        await manager.resign()
        with pytest.raises(NotPrimary):
            await present

    run(body)


# ---- what status says


def test_status_says_how_long_a_node_is_silent_also_when_its_end_is_known() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        await manager.init(PLAN)
        bench.clock.advance(1000)
        await manager.register(storage(1, "h:1"))
        await beating(manager, 1, 7)
        bench.clock.advance(2)
        manager._failure_detector.mark_dead(1, 7)
        one, two, _ = (await manager.get_status(pb.GetStatusRequest())).nodes
        assert (one.alive, one.ended, one.heard, one.silent_ms, len(one.targets)) == (False, True, True, 2000, 2)
        assert (two.alive, two.ended, two.heard) == (False, False, False)

    run(body)


def test_status_has_what_backups_said_and_which_stores_were_refused() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        cluster_id = (await manager.init(PLAN)).cluster_id
        await manager.report_backup(pb.ReportBackupRequest(name="b", report_interval_ms=5000))
        right = pb.AdmitStoreRequest(cluster_id=cluster_id, store_id="right", epoch=1, generation=7, address="h:9")
        await manager.admit_store(right)
        older = pb.AdmitStoreRequest(cluster_id=cluster_id, store_id="right", epoch=1, generation=6, address="h:9")
        with pytest.raises(StrangeStore):
            await manager.admit_store(older)
        bench.clock.advance(2)
        status = await manager.get_status(pb.GetStatusRequest())
        assert [(one.name, one.silent_ms) for one in status.backups] == [("b", 2000)]
        (refused,) = status.refused_stores
        assert (refused.address, refused.ago_ms) == ("h:9", 2000) and "older copy" in refused.reason
        await manager.admit_store(right)
        assert not (await manager.get_status(pb.GetStatusRequest())).refused_stores

    run(body)


def test_status_has_the_rates_of_clocks() -> None:
    async def body(bench: Bench, manager: Manager) -> None:
        await manager.init(plan("a", "b", "c", targets_per_disk=1))
        await manager.register(storage(1, "h:1"))
        for number in range(400):
            bench.clock.advance(2)
            await manager.heartbeat(
                pb.HeartbeatRequest(node_id=1, incarnation=7, clock_ms=1_000_000 + round(number * 2000 * 1.03))
            )
        one, two, _ = (await manager.get_status(pb.GetStatusRequest())).nodes
        assert abs(one.clock_ppm - 30_000) < 100 and not two.HasField("clock_ppm")

    run(body)
