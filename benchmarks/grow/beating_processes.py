"""A load: what thousands of storage processes send to their manager, each over a connection of its own."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.grow.manager_store import INCARNATION, STORE_ID
from threefs import __version__
from threefs.background import cancel_and_wait
from threefs.cluster.registration import HEARTBEATS_PER_T
from threefs.env.clock import CLOCK
from threefs.env.net import RealNet
from threefs.env.random import RANDOM
from threefs.errors import Overloaded, ThreefsError
from threefs.ids import NodeId
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.handshake import Identity
from threefs.rpc.methods import GET_ROUTING, HEARTBEAT, PRESENCE
from threefs.wire import manager_pb2 as pb

_CALL_S = 60.0
_CAPACITY_BYTES = 1 << 40


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
    """One storage process, as far as the manager sees it."""

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
        self._pool = ConnectionPool(RealNet(), Identity(cluster_id, RANDOM.token(16).hex()))
        self._reports = [
            pb.TargetReport(
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
        ]
        self._tasks: list[asyncio.Task[None]] = []

    async def connect(self) -> None:
        await self._pool.connect(self._address, _CALL_S, HEARTBEAT.traffic)

    def start(self, routing_after_s: float) -> None:
        """Beat from now on, and ask for the routing for the first time a while later."""
        self._tasks = [
            asyncio.create_task(self._beat()),
            asyncio.create_task(self._follow(routing_after_s)),
            asyncio.create_task(self._be_present()),
        ]

    async def stop(self) -> None:
        await cancel_and_wait(*self._tasks)
        await self._pool.close()

    async def _beat(self) -> None:
        due_s = CLOCK.monotonic()
        while True:
            await CLOCK.sleep(due_s - CLOCK.monotonic())
            due_s = max(due_s + self._interval_s, CLOCK.monotonic())
            request = pb.HeartbeatRequest(
                node_id=self._node_id,
                incarnation=INCARNATION,
                targets=self._reports,
                routing_version=self._told_version,
                release=__version__,
                clock_ms=round(CLOCK.monotonic() * 1000),
            )
            try:
                reply = await self._pool.call(self._address, HEARTBEAT, request, timeout_s=_CALL_S)
                self._told_version = max(self._told_version, reply.routing_version)
                self._counts.heartbeats += 1
                self._counts.leased += len(reply.leased)
            except ThreefsError as error:
                self._counts.failures.append(f"heartbeat of node {self._node_id}: {error}")

    async def _follow(self, delay_s: float) -> None:
        """As a `RoutingWatcher` asks, but nothing is made of the answer."""
        await CLOCK.sleep(delay_s)
        while True:
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
                continue
            except ThreefsError as error:
                self._counts.failures.append(f"routing of node {self._node_id}: {error}")
                await CLOCK.sleep(self._interval_s)
                continue
            if reply.HasField("routing"):
                self._version, self._term = reply.routing.version, reply.term
                self._counts.routings += 1
                self._counts.routing_bytes += reply.ByteSize()
            elif reply.HasField("changes"):
                self._version = reply.changes.changed.version
                self._counts.changes += 1
                self._counts.change_bytes += reply.ByteSize()

    async def _be_present(self) -> None:
        request = pb.PresenceRequest(node_id=self._node_id, incarnation=INCARNATION)
        try:
            await self._pool.call(self._address, PRESENCE, request, timeout_s=3600.0)
        except ThreefsError as error:
            self._counts.failures.append(f"presence of node {self._node_id}: {error}")
