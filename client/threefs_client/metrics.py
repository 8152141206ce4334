"""The metrics of a client, for the registry of Prometheus that its program has."""

from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from threefs.env import loop_thread
from threefs.rpc.call_durations import CallDurations
from threefs.rpc.traffic_class import TrafficClass
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_client.blocking.filesystem import FileSystem

__all__ = ["ClientMetrics"]


class ClientMetrics(Collector):
    """`prometheus_client.REGISTRY.register(ClientMetrics(fs))`. Calls are counted from then on; without it none is.

    It is for one connection of one process: a program with several connections gives each a registry of its own, and a
    forked child makes its own.
    """

    def __init__(self, fs: FileSystem | AsyncFileSystem) -> None:
        connected = loop_thread.run(fs.connected()) if isinstance(fs, FileSystem) else fs
        self._context = connected.context
        self._calls = CallDurations(self._context.clock)
        self._context.peers.observe_calls(self._calls)

    def collect(self) -> Iterable[Metric]:
        """It may be called in any thread."""
        context = self._context
        yield from self._calls.metrics()
        connections = GaugeMetricFamily("threefs_client_connections", "Open connections to services.", labels=["class"])
        for traffic in TrafficClass:
            connections.add_metric([traffic.name.lower()], context.peers.connection_count(traffic))
        yield connections
        for name, about, value in (
            ("unsent_bytes", "Bytes that were written and are not durable yet.", context.write_budget.used_bytes),
            (
                "lease_remaining_seconds",
                "Until locks and write sessions end.",
                context.lease.remaining_s,
            ),
            ("routing_version", "Of the routing that is known.", context.cluster.routing.version),
        ):
            yield GaugeMetricFamily(f"threefs_client_{name}", about, value)
