"""One storage process, assembled from its parts. The outside world (net, disk, clock, managers) is passed in."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path

import structlog
from prometheus_client import Metric

from threefs.background import BackgroundTasks
from threefs.cluster.applied_configuration import AppliedConfiguration, own_values
from threefs.cluster.kept_routing import KeptRouting
from threefs.cluster.manager_client import Caller
from threefs.cluster.registration import Registration, read_cluster_id
from threefs.cluster.routing_watcher import RoutingWatcher
from threefs.configuration import Role
from threefs.env.clock import CLOCK, Clock
from threefs.env.disk import Disk
from threefs.env.net import Net
from threefs.env.random import RANDOM, Random
from threefs.errors import ConnectionIdle, PeerClosed, ThreefsError
from threefs.ids import NodeId
from threefs.kv.table import Table
from threefs.routing import NodeKind, Routing
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.handshake import Identity
from threefs.rpc.limits import Limits
from threefs.rpc.methods import PRESENCE
from threefs.rpc.server import Server
from threefs.rpc.server_metrics import server_metrics
from threefs.telemetry.metrics_port import MetricsPort
from threefs.telemetry.tracing import Tracing, tracing_to
from threefs.wire import manager_pb2
from threefs_storage.configuration_follower import engine_settings, follow
from threefs_storage.engine.record_store import RecordTable
from threefs_storage.health.disk_stall import STALL_S, DiskStall
from threefs_storage.metrics import background_metrics, target_metrics
from threefs_storage.scheduling.background_scheduler import foreground_of
from threefs_storage.service import Storage
from threefs_storage.settings import Settings
from threefs_storage.targets import Targets

_LIMITS = Limits()
_GRACE_S = 2.0
_MANAGER_S = 3600.0
_PRESENCE_S = 600.0
_PRESENCE_PAUSE_S = 0.1
_OPENING_PAUSE_S = 5.0
_STRAYS_PAUSE_S = 60.0


class StorageNode:
    """Start it once, then stop it once. `managers` makes the client of the managers from the connections of this
    process."""

    def __init__(
        self,
        settings: Settings,
        *,
        net: Net,
        disk: Disk,
        managers: Callable[[ConnectionPool], Caller],
        clock: Clock = CLOCK,
        random: Random = RANDOM,
        open_table: Callable[[Path], Awaitable[RecordTable]] = Table.open,
        limits: Limits = _LIMITS,
        stall_s: float = STALL_S,
    ) -> None:
        self.address = ""
        self.node_id = settings.node_id
        self._settings = settings
        self._clock = clock
        self._configuration = AppliedConfiguration(Role.STORAGE, own_values(settings))
        cluster_file = settings.data_dir / "cluster_id"
        identity = Identity(read_cluster_id(cluster_file), random.token(16).hex(), settings.token, "threefs-storage")
        self._server = Server(net, identity, clock=clock, limits=limits, dscp=settings.dscp)
        self._peers = ConnectionPool(net, identity, clock=clock, dscp=settings.dscp)
        self._cluster = RoutingWatcher(self._peers, settings.managers, clock=clock, random=random)
        self.targets = Targets(
            NodeId(settings.node_id),
            settings.data_dir,
            disk,
            engine_settings(self._configuration),
            clock=clock,
            random=random,
            open_table=open_table,
        )
        self._kept_routing = KeptRouting(settings.data_dir, settings.node_id)
        self._adopting = asyncio.Lock()
        self._is_acting = False  # in the routing: the node is registered
        self._disk_stall = DiskStall(clock, stall_s)
        self._registration = self._new_registration(managers(self._peers), cluster_file, random)
        self._peers.on_lost = self._connection_lost
        self._background = BackgroundTasks()
        self.storage = Storage(
            self.targets,
            self._cluster,
            self._peers,
            self._server.pool,
            clock=clock,
            random=random,
            report=self._registration.report,
            foreground=partial(foreground_of, self._server.traffic),
            configuration=self._configuration,
            tracing=_tracing(settings),
        )
        follow(self._configuration, self.targets, self.storage)
        self._configuration.on_adopted = self._registration.report
        self._metrics = MetricsPort(net, self._collect_metrics)

    def _new_registration(self, manager: Caller, cluster_file: Path, random: Random) -> Registration:
        return Registration(
            manager,
            kind=NodeKind.STORAGE,
            node_id=self.node_id,
            domain=self._settings.domain,
            cluster_file=cluster_file,
            reports=self.targets.reports,
            stores=self.targets.stores,
            unnamed_stores=lambda: list(self.targets.unnamed),
            highest_target=lambda: self._kept_routing.highest_target,
            open_grant=self.targets.open_grant,
            fenced=self.targets.end_leases,
            unreachable=lambda: self.storage.reachability.unreachable(),
            configuration=lambda: self._configuration.report,
            stray_stores=self.targets.strays.report,
            silent=lambda: self._disk_stall.is_over(self.targets),
            clock=self._clock,
            random=random,
        )

    async def _collect_metrics(self) -> Iterable[Metric]:
        return [
            *server_metrics(self._server),
            *background_metrics(self.storage.scheduler.counters),
            *target_metrics(list(self.targets)),
        ]

    async def start(self) -> None:
        """Listen, open the stores, and only then register: the locks of the stores prove that no earlier process serves
        them."""
        self.address = await self._server.start(self._settings.host, self._settings.port)
        await self._cluster.start(_MANAGER_S)
        self._configuration.begin(self._cluster.configuration)
        self._cluster.on_configuration = self._configuration.adopt
        routing = self._cluster.routing  # for both: the next one may lack a target whose store is open by then
        self._kept_routing.check(routing)
        self._cluster.keep = self._hear
        await self._hear(routing)
        await self.targets.open(routing, is_own_disk=self._kept_routing.is_own())
        await self.targets.unnamed.find(self._kept_routing.own_targets(), routing)
        self._cluster.keep = self._set_aside_unknown
        await self._set_aside_unknown(self._cluster.routing)
        # Already now: a manager that was restored registers nobody before every store has said what it keeps.
        self._background.start("opening of targets", self._open_missing())
        await self._registration.start(self.address)
        # Only now: a new store keeps nothing until its node is registered.
        self._cluster.keep = self._adopt
        async with self._adopting:  # one that came just before has its turn first, and is `routing` then
            await self._adopt_in_turn(self._cluster.routing)
        self._server.join(self._registration.cluster_id)
        self.storage.start(self._server)
        self._is_acting = True
        self._registration.report()
        if self._settings.metrics_port:
            await self._metrics.start(self._settings.host, self._settings.metrics_port)
        self._background.start("presence", self._stay_present())
        self._background.start("stray stores", self._look_for_strays())
        self._background.start("room for stores", self._make_room())
        structlog.get_logger().info("serving", address=self.address, targets=sorted(self.targets.by_id))

    async def _hear(self, routing: Routing) -> None:
        """While the stores are opened, which takes long: an administrator may take their disk out of service."""
        self.targets.hear(routing)

    async def _set_aside_unknown(self, routing: Routing) -> None:
        """While this process waits to be registered: the stores were opened by the routing of a manager that may have
        had an older copy of its store, and the one that answers now takes no process with a target that it does not
        know."""
        self.targets.hear(routing)
        async with self._adopting:
            for target in list(self.targets):
                if target.target_id not in routing.targets:
                    await self.targets.set_aside(target)
            self.targets.set_unopened_aside(routing)

    async def _adopt(self, routing: Routing) -> None:
        """Before the targets act in this routing. One after the other: the start adopts the routing that there is, and
        the next one may come meanwhile. Both would open the same stores."""
        self.targets.hear(routing)
        async with self._adopting:
            await self._adopt_in_turn(routing)

    async def _adopt_in_turn(self, routing: Routing) -> None:
        """The caller holds `_adopting`."""
        await self.targets.unnamed.tell(routing)
        self._kept_routing.keep(routing, self.targets.held)
        await self.targets.open_added(routing)
        await self.targets.keep_chains(routing)

    async def _open_missing(self) -> None:
        """Try stores that could not be opened again. The next routing may be long in coming, and their chains lack a
        copy until then, or a restored manager waits for what they keep. One that has left its chain may have been
        deleted here a moment ago."""
        while True:
            await self._clock.sleep(_OPENING_PAUSE_S)
            async with self._adopting:
                routing = self._cluster.routing
                await self.targets.unnamed.read_again(routing)
                if not self._is_acting:
                    await self.targets.open_again(routing)
                elif await self.targets.open_added(routing, members_only=True):
                    await self.targets.keep_chains(routing)
                    self.storage.apply_routing(routing)

    async def _make_room(self) -> None:
        """Takes long, and nobody waits for it. Begins only when the node is registered: before, the routing may be that
        of a manager with an older copy of its store, which does not know who serves a chain."""
        while True:
            await self._clock.sleep(_OPENING_PAUSE_S)
            await self.targets.make_room(lambda: self._cluster.routing)

    async def _look_for_strays(self) -> None:
        """Begins only when the node is registered: a restored manager, which registers none while it asks, may need any
        store."""
        while True:
            await self.targets.strays.look(lambda: self._cluster.routing)
            await self._clock.sleep(_STRAYS_PAUSE_S)

    async def stop(self) -> None:
        """Give the leases up, then tell the manager so, then stop."""
        self.targets.leave()
        await self._registration.announce_leaving()
        await self._metrics.stop()
        await self._background.stop()
        await self._server.stop(_GRACE_S)
        await self._cluster.close()  # no routing opens a target any more, or begins to delete one
        await self.storage.stop()
        await self.targets.close()
        await self._peers.close()

    async def _stay_present(self) -> None:
        """Keep a call open at the primary manager. When that connection ends, the manager checks whether this process
        still listens."""
        while True:
            request = manager_pb2.PresenceRequest(
                node_id=self._settings.node_id, incarnation=self._registration.incarnation
            )
            try:
                await self._peers.call(self._cluster.manager, PRESENCE, request, timeout_s=_PRESENCE_S)
            except ThreefsError as error:
                structlog.get_logger().debug("presence ends", reason=str(error))
            await self._clock.sleep(_PRESENCE_PAUSE_S)

    def _connection_lost(self, address: str, error: ThreefsError) -> None:
        """A connection to a manager has failed: give all leases up until a heartbeat is answered again. A connection
        that the manager has closed does not count: the manager calls this process dead only if nothing listens at its
        address, and that is so only after the process has ended."""
        if address in self._settings.managers and not isinstance(error, PeerClosed | ConnectionIdle):
            self.targets.yield_leases()
            self._registration.report()


def _tracing(settings: Settings) -> Tracing | None:
    if not settings.trace_endpoint:
        return None
    return tracing_to(settings.trace_endpoint, settings.trace_sample, "threefs-storage", f"node-{settings.node_id}")
