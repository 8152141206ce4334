"""A load: what thousands of storage processes send to their manager, each over a connection of its own."""

import asyncio
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from benchmarks.grow.manager_store import INCARNATION, STORE_ID
from threefs import __version__
from threefs.background import cancel_and_wait
from threefs.cluster.registration import HEARTBEATS_PER_T
from threefs.env.clock import CLOCK
from threefs.env.net import RealNet
from threefs.env.random import RANDOM
from threefs.errors import Overloaded, ThreefsError, Unavailable
from threefs.ids import NodeId
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.handshake import Identity
from threefs.rpc.methods import GET_ROUTING, HEARTBEAT, PRESENCE
from threefs.wire import manager_pb2 as pb

_CALL_S = 60.0
_PAUSE_S = 1.0  # before a call is tried again
_CAPACITY_BYTES = 1 << 40
_IN_WRITE_PATH = (pb.SERVING, pb.SYNCING)


@dataclass
class Counts:
    """Of all processes together."""

    heartbeats: int = 0
    leased: int = 0  # targets, in all their answers
    routings: int = 0  # whole snapshots
    routing_bytes: int = 0
    changes: int = 0  # answers that say what has changed
    change_bytes: int = 0
    refused: int = 0  # answers for which the manager had no room at that moment: they were asked for again
    failures: list[str] = field(default_factory=list)


class BeatingProcess:
    """One storage process, as far as the manager sees it.

    It follows its chains: only a target that reports the version of its chain as it is now gets a lease. It has no
    chunks, so a target that syncs is up to date at once.
    """

    def __init__(
        self, address: str, cluster_id: str, node_id: NodeId, targets: Sequence[int], lease_s: float, counts: Counts
    ) -> None:
        self._address = address
        self._node_id = node_id
        self._interval_s = lease_s / HEARTBEATS_PER_T
        self._counts = counts
        self._version = 0  # of the routing that it has
        self._term = 0  # of the manager that has said it
        self._told_version = 0  # in the answers to its heartbeats
        self._leased = 0  # targets, in the newest of them
        self._pool = ConnectionPool(RealNet(), Identity(cluster_id, RANDOM.token(16).hex()))
        self._reports = {
            target: pb.TargetReport(
                target_id=target,
                local_state=pb.LOCAL_UPTODATE,
                chain_version=1,
                capacity_bytes=_CAPACITY_BYTES,
                used_bytes=_CAPACITY_BYTES // 2,
                free_bytes=_CAPACITY_BYTES // 2,
                chunks=100_000,
                disk=f"disk-{node_id}",
                store_id=STORE_ID,
                generation=1,
            )
            for target in targets
        }
        self._target_of: dict[int, int] = {}  # its own target of each chain; empty before the first snapshot
        self._report_due = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_settled(self) -> bool:
        """Whether it has the routing, and all its targets may serve."""
        return bool(self._target_of) and self._leased == len(self._reports)

    async def connect(self) -> None:
        """As often as it takes: the manager that thousands connect to at once does not answer all in time."""
        while True:
            try:
                await self._pool.connect(self._address, _CALL_S, HEARTBEAT.traffic)
                return
            except Unavailable:
                await CLOCK.sleep(_PAUSE_S)

    def start(self, first_s: float) -> None:
        """The first heartbeat is due after so many seconds."""
        first_due_s = CLOCK.monotonic() + first_s
        self._tasks = [asyncio.create_task(self._beat(first_due_s)), asyncio.create_task(self._be_present())]

    def follow_routing(self, snapshots: asyncio.Semaphore) -> None:
        """`snapshots` bounds how many processes ask for the whole of it at the same time."""
        self._tasks.append(asyncio.create_task(self._follow(snapshots)))

    async def stop(self) -> None:
        await cancel_and_wait(*self._tasks)
        await self._pool.close()

    async def _beat(self, due_s: float) -> None:
        while True:
            await self._wait_due(due_s)
            due_s = max(due_s + self._interval_s, CLOCK.monotonic())
            request = pb.HeartbeatRequest(
                node_id=self._node_id,
                incarnation=INCARNATION,
                targets=self._reports.values(),
                routing_version=self._told_version,
                release=__version__,
                clock_ms=round(CLOCK.monotonic() * 1000),
            )
            try:
                reply = await self._pool.call(self._address, HEARTBEAT, request, timeout_s=_CALL_S)
                self._told_version = max(self._told_version, reply.routing_version)
                self._counts.heartbeats += 1
                self._leased = len(reply.leased)
                self._counts.leased += self._leased
            except ThreefsError as error:
                self._counts.failures.append(f"heartbeat of node {self._node_id}: {error}")

    async def _wait_due(self, due_s: float) -> None:
        """Until the next heartbeat, which a change of a chain makes due at once."""
        try:
            async with asyncio.timeout(max(0.0, due_s - CLOCK.monotonic())):
                await self._report_due.wait()
        except TimeoutError:
            pass
        self._report_due.clear()

    async def _follow(self, snapshots: asyncio.Semaphore) -> None:
        """As a `RoutingWatcher` asks, but only its own chains are looked for in the answer."""
        async with snapshots:
            while not self._version:
                await self._poll()
        while True:
            await self._poll()

    async def _poll(self) -> None:
        request = pb.GetRoutingRequest(
            known_version=self._version,
            wait_ms=round(self._interval_s * 1000),
            known_configuration=0,
            known_term=self._term,
        )
        try:
            reply = await self._pool.call(self._address, GET_ROUTING, request, timeout_s=_CALL_S)
        except Overloaded:
            self._counts.refused += 1
            await CLOCK.sleep(self._interval_s / 2)
            return
        except ThreefsError as error:
            self._counts.failures.append(f"routing of node {self._node_id}: {error}")
            await CLOCK.sleep(self._interval_s)
            return
        if reply.HasField("routing"):
            self._version, self._term = reply.routing.version, reply.term
            self._counts.routings += 1
            self._counts.routing_bytes += reply.ByteSize()
            self._adopt(reply.routing)
        elif reply.HasField("changes"):
            self._version = reply.changes.changed.version
            self._counts.changes += 1
            self._counts.change_bytes += reply.ByteSize()
            self._learn(reply.changes.changed.chains)

    def _adopt(self, routing: pb.Routing) -> None:
        """A snapshot has its targets and chains in the order of their ids."""
        for target in self._reports:
            place = bisect_left(routing.targets, target, key=attrgetter("target_id"))
            self._target_of[routing.targets[place].chain_id] = target
        places = (bisect_left(routing.chains, chain, key=attrgetter("chain_id")) for chain in self._target_of)
        self._learn([routing.chains[place] for place in places])

    def _learn(self, chains: Iterable[pb.Chain]) -> None:
        for chain in chains:
            target = self._target_of.get(chain.chain_id)
            if target is None or self._reports[target].chain_version == chain.version:
                continue
            state = next(member.state for member in chain.members if member.target_id == target)
            self._reports[target].chain_version = chain.version
            self._reports[target].local_state = pb.LOCAL_UPTODATE if state in _IN_WRITE_PATH else pb.LOCAL_ONLINE
            self._report_due.set()

    async def _be_present(self) -> None:
        request = pb.PresenceRequest(node_id=self._node_id, incarnation=INCARNATION)
        while True:
            try:
                await self._pool.call(self._address, PRESENCE, request, timeout_s=3600.0)
            except ThreefsError as error:
                self._counts.failures.append(f"presence of node {self._node_id}: {error}")
            await CLOCK.sleep(_PAUSE_S)
