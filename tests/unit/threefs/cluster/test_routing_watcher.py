import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.harness.clocks import SteppedClock
from tests.harness.seeded_random import SeededRandom
from threefs import background, configuration, routing_changes
from threefs import routing as routing_module
from threefs.cluster.routing_watcher import RoutingWatcher
from threefs.configuration import NOTHING_SET, Configuration
from threefs.env.eager import StartedCoroutine
from threefs.env.net import RealNet
from threefs.errors import NotAuthorised, ProtocolError, StrangeStore, ThreefsError, Unavailable, WrongCluster
from threefs.ids import NodeId
from threefs.routing import EMPTY, Node, NodeKind, Routing
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.handshake import Identity
from threefs.wire import manager_pb2 as pb


def snapshot(version: int, cluster_id: str = "c") -> Routing:
    return dataclasses.replace(EMPTY, version=version, cluster_id=cluster_id)


class FakeManagers(ConnectionPool):
    """Stands in for the managers at any number of addresses. Each knows a snapshot, or fails with an error."""

    def __init__(self, **known: Routing | ThreefsError) -> None:
        super().__init__(RealNet(), Identity("", "00" * 16))
        self.known = known
        self.calls: list[tuple[str, int]] = []
        self.term = 0  # of the manager that answers
        self.changes: list[pb.RoutingChanges] = []  # are sent in turn, instead of whole snapshots
        self.wholes = 0  # snapshots that were sent
        self.configuration: Configuration | None = None  # of all managers; None: they are of an older release
        self.checked: list[str] = []
        self.told: list[str] = []  # by clients, of themselves
        self._changed = asyncio.Event()

    async def check(self, address: str, timeout_s: float) -> None:
        self.checked.append(address)

    def now(self, **known: Routing | ThreefsError) -> None:
        self.known.update(known)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def call(self, address: str, method: Any, request: Any, **_: Any) -> Any:
        self.calls.append((address, request.known_version))
        if request.HasField("client"):
            self.told.append(request.client.name)
        await asyncio.sleep(0)
        found = self.known[address]
        while isinstance(found, Routing) and found.version == request.known_version and request.wait_ms:
            await self._changed.wait()
            found = self.known[address]
        if isinstance(found, ThreefsError):
            raise found
        reply = pb.GetRoutingReply()
        if found.version != request.known_version:
            reply.term = self.term
            if request.known_term == self.term and self.changes:
                reply.changes.CopyFrom(self.changes.pop(0))
            else:
                reply.routing.CopyFrom(routing_module.to_wire(found))
                self.wholes += 1
        if self.configuration is not None and self.configuration.made_ns != request.known_configuration:
            reply.configuration.CopyFrom(configuration.to_wire(self.configuration))
        return reply


async def turns(number: int = 30) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def run(
    managers: dict[str, Routing | ThreefsError], body: Callable[[FakeManagers, RoutingWatcher], Awaitable[None]]
) -> None:
    async def main() -> None:
        peers = FakeManagers(**managers)
        cluster = RoutingWatcher(peers, list(managers), clock=SteppedClock(), random=SeededRandom(1))
        try:
            await body(peers, cluster)
        finally:
            await cluster.close()

    asyncio.run(main())


def test_it_has_a_snapshot_when_started_and_follows_the_next() -> None:
    async def body(peers: FakeManagers, cluster: RoutingWatcher) -> None:
        seen: list[Routing] = []
        cluster.on_change(seen.append)
        await cluster.start(5)
        assert cluster.routing == snapshot(3)
        assert peers.identity.cluster_id == "c", "from now on a manager of another cluster is refused"
        peers.now(a=snapshot(4))
        assert await cluster.refresh(3, 5) == snapshot(4)
        assert seen == [snapshot(3), snapshot(4)]

    run({"a": snapshot(3)}, body)


def test_a_client_says_of_itself_what_it_wants_with_each_poll() -> None:
    async def body(peers: FakeManagers, cluster: RoutingWatcher) -> None:
        await cluster.start(5)
        assert not peers.told, "nobody has said what to say"
        cluster.client_report = lambda: pb.ClientReport(name=f"at {cluster.routing.version}")
        peers.now(a=snapshot(4))
        await cluster.refresh(3, 5)
        await turns()
        assert peers.told == ["at 3", "at 4"]

    run({"a": snapshot(3)}, body)


def with_node(routing: Routing, node: int) -> Routing:
    node_id = NodeId(node)
    nodes = {**routing.nodes, node_id: Node(node_id, NodeKind.META, "", "host:1", 1)}
    return dataclasses.replace(routing, version=routing.version + 1, nodes=nodes)


def sent(old: Routing, new: Routing) -> pb.RoutingChanges:
    return routing_changes.to_wire(routing_changes.between(old, new))


def test_it_takes_changes_of_its_snapshot_and_asks_for_the_whole_after_others() -> None:
    first = snapshot(3)
    second = with_node(first, 1)
    third = dataclasses.replace(with_node(first, 2), version=second.version + 1)  # without what the second one has

    async def body(peers: FakeManagers, cluster: RoutingWatcher) -> None:
        peers.term = 7
        await cluster.start(5)
        peers.changes = [sent(first, second)]
        peers.now(a=second)
        assert await cluster.refresh(3, 5) == second
        assert peers.wholes == 1, "the first one"
        peers.changes = [sent(first, third)]  # not since the second one, which is known here
        peers.now(a=third)
        assert await cluster.refresh(4, 5) == third
        assert peers.wholes == 2 and peers.changes == []
        peers.term = 8  # another manager
        fourth = with_node(third, 3)
        peers.changes = [sent(third, fourth)]
        peers.now(a=fourth)
        assert await cluster.refresh(5, 5) == fourth
        assert peers.wholes == 3 and len(peers.changes) == 1

    run({"a": first}, body)


def test_refresh_ends_without_news_after_its_time() -> None:
    async def body(peers: FakeManagers, cluster: RoutingWatcher) -> None:
        await cluster.start(5)
        assert await cluster.refresh(2, 0.01) == snapshot(3), "already newer"
        assert await cluster.refresh(3, 0.01) == snapshot(3)

    run({"a": snapshot(3)}, body)


def test_a_call_that_no_task_has_begun_can_wait_for_news() -> None:
    """A mount starts calls so. There is no task yet that the time could end."""

    async def body(peers: FakeManagers, cluster: RoutingWatcher) -> None:
        def begin() -> None:
            call = cluster.refresh(3, 5)
            begun.set_result(asyncio.ensure_future(StartedCoroutine(call, call.send(None))))

        await cluster.start(5)
        loop = asyncio.get_running_loop()
        begun: asyncio.Future[asyncio.Future[Routing]] = loop.create_future()
        loop.call_soon(begin)
        call = await begun
        peers.now(a=snapshot(4))
        assert await call == snapshot(4)

    run({"a": snapshot(3)}, body)


def test_start_waits_for_a_plan() -> None:
    async def body(peers: FakeManagers, cluster: RoutingWatcher) -> None:
        starting = asyncio.create_task(cluster.start(60))
        await turns(5)
        assert not starting.done()
        peers.now(a=snapshot(1))
        await starting
        assert cluster.routing == snapshot(1)

    run({"a": EMPTY}, body)


def test_start_says_what_is_missing() -> None:
    async def no_plan(peers: FakeManagers, cluster: RoutingWatcher) -> None:
        with pytest.raises(Unavailable, match="the manager at a has no plan yet"):
            await cluster.start(2)

    async def nobody(peers: FakeManagers, cluster: RoutingWatcher) -> None:
        with pytest.raises(Unavailable, match=r"no cluster answers at a, b \(refused\); `threefs up`"):
            await cluster.start(2)

    run({"a": EMPTY}, no_plan)
    run({"a": Unavailable("refused"), "b": Unavailable("refused")}, nobody)


def test_what_waiting_cannot_heal_ends_the_start_at_once() -> None:
    async def body(peers: FakeManagers, cluster: RoutingWatcher) -> None:
        with pytest.raises(NotAuthorised):
            await cluster.start(60)
        assert len(peers.calls) == 1

    run({"a": NotAuthorised("the token is missing or wrong")}, body)


def test_a_program_that_is_no_manager_does_not_end_the_wait_for_one() -> None:
    async def body(peers: FakeManagers, cluster: RoutingWatcher) -> None:
        starting = asyncio.create_task(cluster.start(60))
        await asyncio.sleep(0.01)
        peers.now(a=snapshot(3))
        await starting
        assert cluster.routing == snapshot(3)

    async def alone(peers: FakeManagers, cluster: RoutingWatcher) -> None:
        with pytest.raises(ProtocolError):
            await cluster.start(60)

    stranger = ProtocolError("220 mail.example.org ESMTP")
    run({"a": Unavailable("refused"), "b": stranger}, body)
    run({"b": stranger}, alone)


def test_the_next_manager_is_asked_when_one_is_away() -> None:
    async def body(peers: FakeManagers, cluster: RoutingWatcher) -> None:
        await cluster.start(5)
        assert cluster.routing == snapshot(3)
        peers.now(a=snapshot(5), b=Unavailable("gone"))
        assert await cluster.refresh(3, 5) == snapshot(5)

    run({"a": Unavailable("gone"), "b": snapshot(3)}, body)


@pytest.mark.parametrize("answer", [snapshot(2), snapshot(9, "other"), EMPTY])
def test_an_older_or_foreign_snapshot_is_not_taken_nor_asked_for_without_pause(answer: Routing) -> None:
    """A manager whose data was put back to an earlier state answers every poll at once."""

    async def body(peers: FakeManagers, cluster: RoutingWatcher) -> None:
        await cluster.start(5)
        clock = cluster._clock
        began, calls = clock.monotonic(), len(peers.calls)
        with capture_logs():
            peers.now(a=answer)
            await turns(200)
        assert cluster.routing == snapshot(3)
        polls = len(peers.calls) - calls
        assert 0 < polls < 4 * (clock.monotonic() - began) + 8, "the pauses grow to half a second and more"
        peers.now(a=snapshot(4))
        assert await cluster.refresh(3, 5) == snapshot(4), "and goes on when it can"

    run({"a": snapshot(3)}, body)


@pytest.mark.parametrize("answer", [snapshot(2), snapshot(9, "other")])
def test_a_manager_whose_snapshot_is_not_taken_does_not_keep_the_others_from_being_asked(answer: Routing) -> None:
    """It led on an older copy of the store, and was asked first from then on, and alone."""

    async def body(peers: FakeManagers, cluster: RoutingWatcher) -> None:
        await cluster.start(5)
        with capture_logs():
            peers.configuration = Configuration(9, 99, {"log_level": "debug"})
            peers.now(a=Unavailable("it is started anew"), b=answer)
            await turns(200)
            assert cluster.routing == snapshot(3) and cluster.configuration == NOTHING_SET
            peers.now(a=snapshot(4))
            assert await cluster.refresh(3, 5) == snapshot(4)
        assert cluster.configuration == peers.configuration and cluster.manager == "a"

    run({"a": snapshot(3), "b": Unavailable("not yet")}, body)


def test_a_callback_that_fails_does_not_stop_the_others() -> None:
    async def body(peers: FakeManagers, cluster: RoutingWatcher) -> None:
        seen: list[int] = []

        def fail(routing: Routing) -> None:
            raise ZeroDivisionError

        cluster.on_change(fail)
        cluster.on_change(lambda routing: seen.append(routing.version))
        with capture_logs() as logs:
            await cluster.start(5)
            peers.now(a=snapshot(4))
            await cluster.refresh(3, 5)
        assert seen == [3, 4]
        assert [entry["log_level"] for entry in logs] == ["error", "error"]

    run({"a": snapshot(3)}, body)


def test_a_snapshot_is_kept_before_it_is_used() -> None:
    async def body(peers: FakeManagers, cluster: RoutingWatcher) -> None:
        await cluster.start(5)
        kept = asyncio.Event()
        asked: list[int] = []

        async def keep(routing: Routing) -> None:
            asked.append(routing.version)
            await kept.wait()

        cluster.keep = keep
        peers.now(a=snapshot(4))
        await turns()
        assert asked == [4] and cluster.routing.version == 3
        kept.set()
        assert (await cluster.refresh(3, 5)).version == 4

    run({"a": snapshot(3)}, body)


def test_a_snapshot_that_may_not_be_kept_ends_the_following_and_a_manager_cannot_do_that() -> None:
    """A process that takes no routing any more is of no use, and must not stay alive without a word."""

    async def body(peers: FakeManagers, cluster: RoutingWatcher) -> None:
        deaths: list[tuple[str, BaseException | None]] = []
        background.on_death(lambda name, error: deaths.append((name, error)))
        await cluster.start(5)
        refusal = StrangeStore("the manager's store lacks chain table 2")

        async def refuse(routing: Routing) -> None:
            raise refusal

        cluster.keep = refuse
        with capture_logs():
            peers.now(a=StrangeStore("says the manager"))
            await turns(200)
            assert not deaths
            peers.now(a=snapshot(4))
            await turns(200)
        assert deaths == [("following of the routing", refusal)] and cluster.routing == snapshot(3)

    run({"a": snapshot(3)}, body)


def test_a_foreign_cluster_is_named() -> None:
    async def body(peers: FakeManagers, cluster: RoutingWatcher) -> None:
        await cluster.start(5)
        with pytest.raises(WrongCluster, match="at a now speaks for cluster other, not c"):
            await cluster._adopt("a", snapshot(9, "other"))

    run({"a": snapshot(3)}, body)


def test_it_follows_the_configuration_of_a_manager_that_has_one() -> None:
    newest = Configuration(2, 77, {"log_level": "debug"})

    async def body(peers: FakeManagers, cluster: RoutingWatcher) -> None:
        seen: list[Configuration] = []
        cluster.on_configuration = seen.append
        await cluster.start(5)
        assert cluster.configuration == NOTHING_SET and seen == [], "an older manager has none"
        peers.configuration = newest
        peers.now(a=snapshot(4))
        await cluster.refresh(3, 5)
        await turns()
        assert cluster.configuration == newest and seen == [newest], "it comes once"

    run({"a": snapshot(3)}, body)


def test_the_connections_to_a_process_that_was_started_anew_are_checked() -> None:
    def with_node(version: int, incarnation: int, address: str) -> Routing:
        node = Node(NodeId(3), NodeKind.STORAGE, "", address, incarnation)
        return dataclasses.replace(snapshot(version), nodes={NodeId(3): node})

    async def body(peers: FakeManagers, cluster: RoutingWatcher) -> None:
        await cluster.start(5)
        peers.now(a=with_node(3, 1, "old:1"))
        await turns()
        assert not peers.checked, "nobody has had a connection to it before"
        peers.now(a=with_node(4, 1, "old:1"))
        await turns()
        assert not peers.checked, "it is the same process"
        peers.now(a=with_node(5, 2, "new:1"))
        await turns()
        assert cluster.routing.version == 5 and peers.checked == ["old:1"]

    run({"a": with_node(2, 0, "")}, body)
