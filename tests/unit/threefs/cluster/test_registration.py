import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.harness.clocks import SteppedClock
from tests.harness.small_disk import small_disk
from tests.harness.virtual_time import LOOP_CLOCK, run_virtual
from threefs import __version__, background
from threefs.cluster.registration import Registration, read_cluster_id, write_cluster_id
from threefs.errors import (
    AlreadyExists,
    Corrupt,
    DeadlineExceeded,
    NodeInUse,
    NoSpace,
    NotFound,
    StaleIncarnation,
    StrangeStore,
    ThreefsError,
    Unavailable,
    WrongCluster,
)
from threefs.routing import NodeKind
from threefs.rpc.methods import GET_ROUTING, HEARTBEAT, REGISTER
from threefs.wire import manager_pb2 as pb

ONE, OTHER = "ab" * 16, "cd" * 16
LEASE_MS = 10_000


class Manager:
    """Fails with the errors it is given, one a call, then answers."""

    def __init__(self, *errors: ThreefsError, known: int = 0) -> None:
        self.errors = list(errors)
        self.known = known  # the incarnation that it has of node 3
        self.requests: list[Any] = []
        self.heard = asyncio.Event()

    async def call(self, method: Any, request: Any, *, timeout_s: float) -> Any:
        await asyncio.sleep(0)
        if method is GET_ROUTING:
            nodes = [pb.Node(node_id=3, kind=pb.STORAGE, incarnation=self.known)]
            return pb.GetRoutingReply(routing=pb.Routing(nodes=nodes, lease_ms=LEASE_MS))
        self.requests.append(type(request).FromString(request.SerializeToString()))
        if self.errors:
            raise self.errors.pop(0)
        if method is REGISTER:
            routing = pb.Routing(lease_ms=LEASE_MS)
            return pb.RegisterReply(node_id=request.node_id or 1_000_001, cluster_id=ONE, routing=routing)
        assert method is HEARTBEAT
        self.heard.set()
        return pb.HeartbeatReply(routing_version=1, leased=[target.target_id for target in request.targets])


def registration(manager: Manager, directory: Path, **options: Any) -> Registration:
    return Registration(
        manager,
        kind=options.pop("kind", NodeKind.META),
        node_id=options.pop("node_id", 0),
        domain="d",
        cluster_file=directory / "cluster_id",
        clock=options.pop("clock", SteppedClock()),
        **options,
    )


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        with capture_logs():
            await body()

    asyncio.run(main())


def test_it_tells_the_newest_version_of_the_routing_that_it_ever_heard_of(tmp_path: Path) -> None:
    async def body() -> None:
        manager = Manager()
        place = registration(manager, tmp_path)
        place._note_routing_version(41)
        place._note_routing_version(7)
        await place.stop()
        again = Manager()
        later = registration(again, tmp_path)
        await later.start("h:1")
        await again.heard.wait()
        await later.stop()
        assert [request.routing_version for request in again.requests[:2]] == [41, 41]
        (tmp_path / "routing_version").write_text("")  # as a power cut may leave it
        assert registration(Manager(), tmp_path)._newest_routing == 0

    run(body)


async def test_a_full_disk_ends_no_process_that_has_to_register_again(tmp_path: Path) -> None:
    manager, place = (known := Manager()), registration(known, tmp_path)
    await place.start("h:1")
    (tmp_path / "incarnation.new").mkdir()  # as on a full disk, nothing can be stored, also not by a new start
    manager.errors = [NotFound("it was taken for dead")] * 3
    await asyncio.sleep(0.05)
    (tmp_path / "incarnation.new").rmdir()
    before, manager.errors = place.incarnation, [NotFound("it was taken for dead")]
    await asyncio.sleep(0.05)
    assert place.incarnation > before and not manager.errors


def test_a_full_disk_ends_no_process_that_hears_of_a_new_version(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "64k") as disk:
        place = registration(Manager(), disk)
        place._note_routing_version(41)
        with suppress(OSError):
            (disk / "filler").write_bytes(b"x" * 65_536)
        with capture_logs() as logged:
            place._note_routing_version(42)
        assert [entry["event"] for entry in logged] == ["the version of the routing cannot be kept"]
        assert place._newest_routing == 42


def test_a_process_that_registers_again_says_where_it_belongs_from_its_first_start_on(tmp_path: Path) -> None:
    """Else it is believed nothing about the age of the manager's store, and any cluster takes it in."""

    async def body() -> None:
        manager = Manager()
        place = registration(manager, tmp_path)
        await place.start("h:1")
        manager.errors.append(NotFound("who is that"))
        await manager.heard.wait()
        while len([request for request in manager.requests if isinstance(request, pb.RegisterRequest)]) < 2:
            await asyncio.sleep(0)
        await place.stop()
        registrations = [request for request in manager.requests if isinstance(request, pb.RegisterRequest)]
        assert [request.cluster_id for request in registrations] == ["", ONE]

    run(body)


def test_it_learns_its_id_and_cluster_and_beats(tmp_path: Path) -> None:
    async def body() -> None:
        manager = Manager()
        place = registration(manager, tmp_path, reports=lambda: [pb.TargetReport(target_id=101)])
        await place.start("h:1")
        assert (place.node_id, place.cluster_id) == (1_000_001, ONE)
        assert read_cluster_id(tmp_path / "cluster_id") == ONE
        await manager.heard.wait()
        await place.stop()
        first, beat = manager.requests[:2]
        assert (first.kind, first.address, first.domain, first.cluster_id) == (2, "h:1", "d", "")
        assert first.incarnation == beat.incarnation == place.incarnation
        assert (beat.node_id, [t.target_id for t in beat.targets]) == (1_000_001, [101])
        again = Manager()
        await registration(again, tmp_path).start("h:1")
        assert again.requests[0].cluster_id == ONE, "the next start says where it belongs"

    run(body)


def test_news_are_reported_at_once(tmp_path: Path) -> None:
    async def body() -> None:
        manager = Manager()
        place = registration(manager, tmp_path)
        await place.start("h:1")
        for _ in range(3):
            await manager.heard.wait()
            manager.heard.clear()
            place.report()
        await manager.heard.wait()
        await place.stop()

    run(body)


async def test_it_waits_for_the_manager_and_says_so_once(tmp_path: Path) -> None:
    errors = (
        DeadlineExceeded("slow"),
        NoSpace("the manager's disk is full"),
        StrangeStore("the manager's store is an older copy"),  # the process ended, and the manager did as well
        Unavailable("no plan yet"),
    )
    manager = Manager(*[Unavailable("nobody there")] * 5, *errors)
    place = registration(manager, tmp_path)
    with capture_logs() as logs:
        await place.start("h:1")
        await place.stop()
    assert len(manager.requests) >= 9
    assert [entry["error"] for entry in logs] == ["nobody there", *map(str, errors)]


@pytest.mark.parametrize("error", [WrongCluster("no"), NotFound("no such node")])
def test_what_waiting_cannot_heal_is_raised(error: ThreefsError, tmp_path: Path) -> None:
    async def body() -> None:
        manager = Manager(error)
        with pytest.raises(type(error)):
            await registration(manager, tmp_path).start("h:1")
        assert len(manager.requests) == 1 and not (tmp_path / "cluster_id").exists()

    run(body)


def test_a_taken_address_may_become_free(tmp_path: Path) -> None:
    async def body() -> None:
        patient = registration(Manager(*[AlreadyExists("node 1 is at h:1")] * 20), tmp_path)
        await patient.start("h:1")
        await patient.stop()
        clock = SteppedClock()
        began = clock.monotonic()
        with pytest.raises(AlreadyExists):
            await registration(Manager(*[AlreadyExists("node 1 is at h:1")] * 200), tmp_path, clock=clock).start("h:1")
        assert 15 < clock.monotonic() - began < 16

    run(body)


def test_the_wait_for_a_manager_is_no_wait_for_another_process(tmp_path: Path) -> None:
    """After a loss of all power a node came back at another address, a while before the manager did. The first answer
    of that one was that the node may still be at its old address, and the process ended at once."""

    async def body() -> None:
        away, in_use = [Unavailable("no manager answers")] * 200, [NodeInUse("it was at h:2")] * 50
        place = registration(Manager(*away, *in_use, *away, *in_use), tmp_path)
        await place.start("h:1")
        await place.stop()

    run(body)


def test_a_target_that_the_manager_does_not_know_may_be_set_aside(tmp_path: Path) -> None:
    """The routing that says so is on its way to a process that a restored manager did not hear of before."""

    async def body() -> None:
        refused = [NotFound("node 3 has no target 7")] * 3
        for manager in (Manager(*refused), Manager(*refused, NotFound("the plan has no node 3"))):

            def stores(asked: list[Any] = manager.requests) -> list[pb.Store]:
                return [pb.Store(target_id=7)] if len(asked) < len(refused) else []

            place = registration(manager, tmp_path, kind=NodeKind.STORAGE, node_id=3, stores=stores)
            if len(manager.errors) == len(refused):
                await place.start("h:1")
                await place.stop()
            else:
                with pytest.raises(NotFound, match="the plan has no node 3"):
                    await place.start("h:1")

    run(body)


def test_the_heart_goes_on_through_failures(tmp_path: Path) -> None:
    async def body() -> None:
        manager = Manager()
        reported = 0

        def reports() -> list[pb.TargetReport]:
            nonlocal reported
            reported += 1
            if reported == 2:
                raise ZeroDivisionError
            return []

        place = registration(manager, tmp_path, reports=reports)
        await place.start("h:1")
        await manager.heard.wait()
        manager.errors = [Unavailable("away"), NotFound("started anew since")]
        manager.heard.clear()
        while reported < 4:
            await asyncio.sleep(0)
        await manager.heard.wait()
        await place.stop()

    run(body)


def test_r10_a_lease_counts_from_the_sending_of_the_heartbeat(tmp_path: Path) -> None:
    async def body() -> None:
        clock, manager = SteppedClock(), Manager()
        leases: list[tuple[list[int], float]] = []

        class Slow(Manager):
            async def call(self, method: Any, request: Any, *, timeout_s: float) -> Any:
                if method is HEARTBEAT:
                    clock.advance(3.0)  # the answer takes so long
                return await manager.call(method, request, timeout_s=timeout_s)

        place = registration(
            Slow(),
            tmp_path,
            clock=clock,
            reports=lambda: [pb.TargetReport(target_id=101)],
            open_grant=lambda: lambda targets, until: leases.append((list(targets), until)),
        )
        began = clock.monotonic()
        await place.start("h:1")
        await manager.heard.wait()
        while not leases:
            await asyncio.sleep(0)
        assert leases[0] == ([101], began + LEASE_MS / 2000)
        await place.stop()

    run(body)


def test_a_farewell_says_how_the_targets_are_now(tmp_path: Path) -> None:
    async def body() -> None:
        manager = Manager()
        states = [pb.LOCAL_UPTODATE]
        place = registration(
            manager, tmp_path, reports=lambda: [pb.TargetReport(target_id=101, local_state=states[-1])]
        )
        await place.start("h:1")
        await manager.heard.wait()
        states.append(pb.LOCAL_OFFLINE)
        await place.announce_leaving()
        assert manager.requests[-1].targets[0].local_state == pb.LOCAL_OFFLINE
        manager.errors = [Unavailable("it is gone as well")]
        await place.announce_leaving()

    run(body)


def test_data_of_another_cluster_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    async def body() -> None:
        file = tmp_path / "cluster_id"
        write_cluster_id(file, OTHER)
        with pytest.raises(WrongCluster, match=f"{OTHER}.*{ONE}"):
            await registration(Manager(), tmp_path).start("h:1")
        assert read_cluster_id(file) == OTHER

    run(body)


def test_the_file_of_the_cluster_id(tmp_path: Path) -> None:
    file = tmp_path / "new" / "cluster_id"
    assert read_cluster_id(file) == ""
    write_cluster_id(file, ONE)
    write_cluster_id(file, ONE)
    assert file.read_text() == ONE + "\n" and list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("content", [b"", b"\n", b"ab" * 15, b"AB" * 16, b"xy" * 16, b"\xff" * 32])
def test_half_an_id_is_nobodys(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "cluster_id"
    file.write_bytes(content)
    with pytest.raises(Corrupt, match="cluster_id does not hold a cluster id"):
        read_cluster_id(file)


def test_news_are_sent_at_once_and_otherwise_a_heartbeat_goes_out_five_times_per_t(tmp_path: Path) -> None:
    async def body() -> None:
        clock, manager = SteppedClock(sleepers_wait=True), Manager()
        place = registration(manager, tmp_path, clock=clock)

        async def beats() -> int:
            for _ in range(20):
                await asyncio.sleep(0)
            return len(manager.requests) - 1

        await place.start("h:1")
        assert await beats() == 1
        place.report()
        place.report()
        assert await beats() == 2, "what is said together is sent together"
        place.report()
        assert await beats() == 3
        clock.advance(LEASE_MS / 1000 / 5)
        assert await beats() == 4
        assert set(clock.sleeps) == {LEASE_MS / 1000 / 5}
        await place.stop()
        place.report()
        assert await beats() == 4

    run(body)


def test_a_service_that_never_registered_sends_no_farewell(tmp_path: Path) -> None:
    async def body() -> None:
        manager = Manager()
        await registration(manager, tmp_path).announce_leaving()
        assert not manager.requests

    run(body)


@pytest.mark.parametrize("kind", list(NodeKind))
def test_a_process_that_is_fenced_registers_anew_with_a_higher_incarnation(kind: NodeKind, tmp_path: Path) -> None:
    """Whoever told the manager to take another process for this node: it comes back by itself."""

    async def body() -> None:
        manager = Manager()
        fenced: list[int] = []
        place = registration(
            manager,
            tmp_path,
            kind=kind,
            stores=lambda: [pb.Store(target_id=101, store_id=len(fenced))],
            fenced=lambda: fenced.append(len(manager.requests)),
        )
        await place.start("h:1")
        first = place.incarnation
        manager.errors.append(NotFound("node 3 has been started anew since"))
        while len(manager.requests) < 6:
            await asyncio.sleep(0)
        await place.stop()
        one, two = (request for request in manager.requests if isinstance(request, pb.RegisterRequest))
        assert (one.incarnation, two.incarnation) == (first, place.incarnation) and first < place.incarnation
        assert two.address == "h:1"
        assert [s.store_id for s in two.stores] == [1], "what it keeps now"
        assert len(fenced) == 1 and fenced[0] <= manager.requests.index(two), "it has given its leases up before"
        beats = [r for r in manager.requests[manager.requests.index(two) :] if isinstance(r, pb.HeartbeatRequest)]
        assert beats and all(beat.incarnation == place.incarnation for beat in beats)

    run(body)


def test_a_process_that_is_fenced_by_one_that_lives_dies(tmp_path: Path) -> None:
    async def body() -> None:
        deaths: list[tuple[str, BaseException | None]] = []
        background.on_death(lambda name, error: deaths.append((name, error)))
        manager = Manager()
        place = registration(manager, tmp_path, kind=NodeKind.STORAGE, node_id=3)
        await place.start("h:1")
        manager.errors = [NotFound("started anew since"), *[NodeInUse("node 3 is alive at h:2")] * 1000]
        while not deaths:
            await asyncio.sleep(0)
        assert [(name, type(error)) for name, error in deaths] == [("heartbeats", NodeInUse)]
        await place.stop()

    run(body)


def test_a_heart_that_can_never_beat_dies(tmp_path: Path) -> None:
    async def body() -> None:
        deaths: list[str] = []
        background.on_death(lambda name, error: deaths.append(name))

        def reports() -> list[pb.TargetReport]:
            raise ZeroDivisionError

        place = registration(Manager(), tmp_path, reports=reports)
        await place.start("h:1")
        while not deaths:
            await asyncio.sleep(0)
        assert deaths == ["heartbeats"]

    run(body)


def test_a_node_that_has_lost_its_directory_takes_a_number_above_the_known_one(tmp_path: Path) -> None:
    async def body() -> None:
        manager = Manager(StaleIncarnation("not newer"), known=2**63)
        place = registration(manager, tmp_path, kind=NodeKind.STORAGE, node_id=3)
        await place.start("h:1")
        assert 2**63 < place.incarnation == manager.requests[1].incarnation
        await place.stop()

    run(body)


def test_each_start_has_a_higher_incarnation(tmp_path: Path) -> None:
    async def body() -> None:
        drawn = []
        for _ in range(3):
            place = registration(Manager(), tmp_path)
            await place.start("h:1")
            await place.stop()
            drawn.append(place.incarnation)
        assert drawn == sorted(set(drawn))

    run(body)


def test_the_last_heartbeat_says_that_it_is_the_last(tmp_path: Path) -> None:
    async def body() -> None:
        manager = Manager()
        place = registration(manager, tmp_path)
        await place.start("h:1")
        await manager.heard.wait()
        assert not manager.requests[-1].leaving and manager.requests[-1].release == __version__
        await place.announce_leaving()
        assert manager.requests[-1].leaving

    run(body)


def test_none_is_sent_while_the_process_is_to_be_silent(tmp_path: Path) -> None:
    async def body() -> None:
        manager, silent = Manager(), [True]
        place = registration(manager, tmp_path, silent=lambda: silent[0], clock=LOOP_CLOCK)
        await place.start("h:1")
        place.report()
        await asyncio.sleep(5 * LEASE_MS / 1000)
        assert not manager.heard.is_set()
        silent[0] = False
        await manager.heard.wait()
        await place.stop()

    run_virtual(body())
