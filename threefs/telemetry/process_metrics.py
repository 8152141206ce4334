"""The metrics that every process has: its release, memory, CPU and descriptors, and how late its event loop is."""

import asyncio
import platform
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, GCCollector, Metric, ProcessCollector
from prometheus_client.core import GaugeMetricFamily

from threefs import __version__
from threefs.telemetry.histogram import Histogram, family

_INTERVAL_S = 0.25


class ProcessMetrics:
    """Use it within an event loop. The lag of the loop is measured between `start` and `stop`."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._lag = Histogram()
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = loop.time() + _INTERVAL_S
        self._timer = loop.call_at(self._due, self._measure)

    def _measure(self) -> None:
        self._lag.observe(max(0.0, asyncio.get_running_loop().time() - self._due))
        self.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def collect(self) -> Iterable[Metric]:
        build = GaugeMetricFamily("threefs_build_info", "The release, always 1.", labels=["release", "python"])
        build.add_metric([__version__, platform.python_version()], 1)
        yield build
        yield family(
            "threefs_event_loop_lag_seconds",
            "How late a timer of the event loop ran: other work kept the loop busy for so long.",
            [],
            [((), self._lag)],
        )
        yield from self._registry.collect()
