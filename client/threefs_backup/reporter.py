"""Tells the primary manager how a backup is, so that `threefs health` warns of it, and Prometheus."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from threefs.background import BackgroundTasks
from threefs.env.clock import CLOCK, Clock
from threefs.env.net import RealNet
from threefs.errors import ThreefsError
from threefs.rpc.methods import REPORT_BACKUP
from threefs.telemetry.library_logging import LibraryLogger
from threefs.telemetry.metrics_port import MetricsPort
from threefs.wire import manager_pb2 as pb
from threefs_backup.follower import Follower, Service

REPORT_INTERVAL_S = 5.0
_CALL_S = 2.0
_METRICS_HOST = "127.0.0.1"
_LOG = LibraryLogger(__name__)


class Reporter:
    """`name` is the place of the backup, as people know it. `followers` loses those that cannot be copied."""

    def __init__(self, name: str, manager: Service, followers: Sequence[Follower], clock: Clock = CLOCK) -> None:
        self._name = name
        self._manager = manager
        self._followers = followers
        self._clock = clock
        self._background = BackgroundTasks()

    @asynccontextmanager
    async def running(self, metrics_port: int = 0) -> AsyncIterator[None]:
        """Report again and again; and answer Prometheus, unless the port is 0."""
        port = MetricsPort(RealNet(), self._collect)
        if metrics_port:
            await port.start(_METRICS_HOST, metrics_port)
        self._background.start("reports of the backup", self._keep_reporting())
        try:
            yield
        finally:
            await self._background.stop()
            await port.stop()

    async def _keep_reporting(self) -> None:
        while True:
            await self._clock.sleep(REPORT_INTERVAL_S)
            await self.report(goes_on=True)

    async def report(self, *, goes_on: bool) -> None:
        """The backup works without it, so an error is only logged. An older manager does not know the call."""
        interval_ms = round(REPORT_INTERVAL_S * 1000) if goes_on else 0
        stores = [self._describe(follower) for follower in self._followers]
        request = pb.ReportBackupRequest(name=self._name, stores=stores, report_interval_ms=interval_ms)
        try:
            await self._manager.call(REPORT_BACKUP, request, timeout_s=_CALL_S)
        except ThreefsError as error:
            _LOG.info("the manager was not told how the backup is", error=str(error))

    def _describe(self, follower: Follower) -> pb.BackedUpStore:
        return pb.BackedUpStore(
            store=follower.role,
            complete=bool(follower.as_of_ns),
            behind_ms=max(0, round(self._behind_s(follower) * 1000)),
            failure=follower.failure,
        )

    def _behind_s(self, follower: Follower) -> float:
        return (self._clock.wall_ns() - follower.as_of_ns) / 1e9 if follower.as_of_ns else 0.0

    async def _collect(self) -> Iterable[Metric]:
        return self.metrics()

    def metrics(self) -> Iterable[Metric]:
        rows = (
            ("behind_seconds", "The backup has what was acknowledged longer ago.", self._behind_s),
            ("complete", "1: there is a whole copy of the store.", lambda one: float(bool(one.as_of_ns))),
            ("failing", "1: the last round did not succeed.", lambda one: float(bool(one.failure))),
            ("length_bytes", "Snapshot and log.", lambda one: float(one.length_bytes)),
        )
        for name, about, value in rows:
            family = GaugeMetricFamily(f"threefs_backup_{name}", about, labels=["store"])
            for follower in self._followers:
                family.add_metric([follower.role], value(follower))
            yield family
