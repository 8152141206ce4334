"""One meta service, made of its parts. The network, the engine, the clock and the random source are passed in."""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog
from prometheus_client import Metric

from threefs.background import BackgroundTasks
from threefs.backup_source import BackupSource
from threefs.cluster.applied_configuration import AppliedConfiguration, own_values
from threefs.cluster.chunk_client import ChunkClient
from threefs.cluster.manager_client import Caller
from threefs.cluster.registration import Registration, read_cluster_id
from threefs.cluster.routing_watcher import RoutingWatcher
from threefs.configuration import Role
from threefs.env.clock import CLOCK, Clock
from threefs.env.net import Net
from threefs.env.random import RANDOM, Random
from threefs.errors import ThreefsError
from threefs.ids import ClientId
from threefs.kv.engine_api import Engine
from threefs.routing import NodeKind
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.handshake import Identity
from threefs.rpc.limits import Limits
from threefs.rpc.methods import GET_STATUS
from threefs.rpc.server import Server
from threefs.rpc.server_metrics import server_metrics
from threefs.telemetry import logs
from threefs.telemetry.disk_metrics import store_disk
from threefs.telemetry.metrics_port import MetricsPort
from threefs.wire import manager_pb2
from threefs.wire import meta_pb2 as pb
from threefs_meta.context import Context
from threefs_meta.garbage_collector import GarbageCollector
from threefs_meta.lease.lease_reaper import LeaseReaper
from threefs_meta.lease.logical_clock import LogicalClock
from threefs_meta.listing_cache import ListingCache
from threefs_meta.metrics import metrics
from threefs_meta.ops.statistics import counted, statistics
from threefs_meta.orphan_collector import OrphanCollector
from threefs_meta.quota.aggregator import UsageAggregator
from threefs_meta.service import bind
from threefs_meta.settings import Settings
from threefs_meta.statistics import SAMPLE_S
from threefs_meta.store.identity import StoreIdentity, first_inode
from threefs_meta.store.inode_numbers import InodeAllocator
from threefs_meta.store.reopening import outlast_reopening

_LIMITS = Limits()
_GRACE_S = 2.0
_START_S = 30.0
_STATUS_S = 5.0
_SCRAPE_S = 5.0  # half of what Prometheus waits by default


class MetaNode:
    """Start it once, then stop it once. `managers` makes the client of the managers from this process's connections."""

    def __init__(
        self,
        settings: Settings,
        *,
        net: Net,
        engine: Engine,
        managers: Callable[[ConnectionPool], Caller],
        sole: bool = False,
        clock: Clock = CLOCK,
        random: Random = RANDOM,
        limits: Limits = _LIMITS,
    ) -> None:
        """`sole`: the engine admits one process."""
        self.address = ""
        self._settings = settings
        self._engine = engine
        self._clock = clock
        self._random = random
        self._configuration = AppliedConfiguration(Role.META, own_values(settings))
        cluster_file: Path = settings.data_dir / "cluster_id"
        client = ClientId(random.token(16))
        identity = Identity(read_cluster_id(cluster_file), client.hex(), settings.token, "threefs-meta")
        self._server = Server(net, identity, clock=clock, limits=limits, dscp=settings.dscp)
        self._peers = ConnectionPool(net, identity, clock=clock, dscp=settings.dscp)
        self._managers = managers(self._peers)
        self._cluster = RoutingWatcher(self._peers, settings.managers, clock=clock, random=random)
        self._registration = Registration(
            self._managers,
            kind=NodeKind.META,
            node_id=0,
            domain="",
            cluster_file=cluster_file,
            configuration=lambda: self._configuration.report,
            clock=clock,
            random=random,
        )
        self._identity = StoreIdentity(
            engine,
            self._managers,
            lambda: self._registration.cluster_id,
            owner=(settings.owner_uid, settings.owner_gid),
            address=lambda: self.address,
            is_sole=sole,
            clock=clock,
            random=random,
        )
        chunks = ChunkClient(self._peers, self._cluster, client, clock=clock, random=random)
        context = self._context = Context(
            engine=engine,
            chunks=chunks,
            allocator=InodeAllocator(engine, report=self._identity.report_inode_numbers, clock=clock, random=random),
            logical_clock=LogicalClock(engine, lambda: self._cluster.routing.lease_s, clock=clock, random=random),
            routing=lambda: self._cluster.routing,
            status=self._status,
            clock=clock,
            random=random,
            first_inode=lambda: first_inode(self._identity.record),
            listing_cache=ListingCache(self._configuration.integer("listing_cache_bytes")),
            started_at=clock.monotonic(),
        )
        self._backup = BackupSource(engine, clock=clock, random=random)
        self._garbage_collector = GarbageCollector(context, self._configuration.integer("removals_at_once"))
        self._orphan_collector = OrphanCollector(
            context, chunks, lambda: self.node_id, self._configuration.number("orphan_interval_s")
        )
        self._lease_reaper = LeaseReaper(context)
        self._usage_aggregator = UsageAggregator(context)
        self._metrics = MetricsPort(net, self._collect_metrics)
        self._background = BackgroundTasks()
        self._follow_configuration()

    def _follow_configuration(self) -> None:
        """Let the parts take new values."""
        values = self._configuration
        values.on_change(["log_level"], lambda: logs.set_level(values.word("log_level")))
        values.on_change(
            ["listing_cache_bytes"],
            lambda: self._context.listing_cache.set_max_bytes(values.integer("listing_cache_bytes")),
        )
        values.on_change(
            ["removals_at_once"],
            lambda: self._garbage_collector.set_removals_at_once(values.integer("removals_at_once")),
        )
        values.on_change(
            ["orphan_interval_s"], lambda: self._orphan_collector.set_interval(values.number("orphan_interval_s"))
        )
        values.on_adopted = self._registration.report

    @property
    def node_id(self) -> int:
        """The number that the manager has given to this node; valid after `start`."""
        return self._registration.node_id

    async def _status(self) -> manager_pb2.GetStatusReply:
        return await self._managers.call(GET_STATUS, manager_pb2.GetStatusRequest(), timeout_s=_STATUS_S)

    async def _collect_metrics(self) -> Iterable[Metric]:
        """Also while the store does not answer: then they matter most."""
        try:
            async with asyncio.timeout(_SCRAPE_S):
                found = await statistics(self._context, pb.StatisticsRequest())
                of_meta = metrics(found, store_answers=not found.store_disk.full)
        except (ThreefsError, TimeoutError):
            of_meta = metrics(counted(self._context), store_answers=False)
        of_disk = store_disk(self._settings.data_dir) if self._engine.is_embedded else ()
        return [*server_metrics(self._server), *of_meta, *of_disk]

    async def _sample(self) -> None:
        while True:
            self._context.statistics.sample(self._clock.monotonic(), self._engine.transaction_counts)
            await self._clock.sleep(SAMPLE_S)

    async def start(self) -> None:
        """Raises StrangeStore if the store is not that of the cluster, and errors of the store."""
        self.address = await self._server.start(self._settings.host, self._settings.port)
        await self._registration.start(self.address)
        self._server.join(self._registration.cluster_id)
        await self._identity.admit()  # before anything in the store is trusted
        await self._cluster.start(_START_S)
        self._configuration.begin(self._cluster.configuration)
        self._cluster.on_configuration = self._configuration.adopt
        await outlast_reopening(self._context.logical_clock.poll, self._clock)  # changes need stamps
        await outlast_reopening(self._load_quotas, self._clock)
        self._backup.bind(self._server)
        bind(self._server, self._context)  # after the chains are known: until then callers try again
        self._background.start("statistics sampler", self._sample())
        self._background.start("identity of the store", self._identity.run())
        self._lease_reaper.start()
        self._usage_aggregator.start()
        self._garbage_collector.start()
        self._orphan_collector.start()
        if self._settings.metrics_port:
            await self._metrics.start(self._settings.host, self._settings.metrics_port)
        structlog.get_logger().info("serving", address=self.address, node_id=self._registration.node_id)

    async def _load_quotas(self) -> None:
        await self._context.quotas.load(self._engine.begin(), self._context.damaged)

    async def _close_allocator(self) -> None:
        try:
            await self._context.allocator.close()
        except ThreefsError as error:  # statfs then shows a few inodes too many
            structlog.get_logger().info("unused inode numbers could not be counted", error=str(error))

    async def stop(self) -> None:
        """The engine stays open: it belongs to the caller."""
        await self._metrics.stop()
        await self._background.stop()
        await self._registration.stop()
        await self._server.stop(_GRACE_S)
        await self._backup.close()
        await self._orphan_collector.stop()
        await self._garbage_collector.stop()
        await self._lease_reaper.stop()
        await self._usage_aggregator.stop()
        await self._close_allocator()
        await self._cluster.close()
        await self._peers.close()
