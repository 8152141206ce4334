"""The counters of a storage service as metrics of Prometheus."""

from collections.abc import Iterable, Mapping

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from threefs.rpc.traffic_class import TrafficClass
from threefs.rpc.traffic_counters import TrafficCounters
from threefs_storage.scheduling.background_scheduler import Work, WorkCounters

_TRAFFIC = (
    (CounterMetricFamily, "calls", "Calls that were begun."),
    (CounterMetricFamily, "sent_bytes", "Bytes of answers."),
    (CounterMetricFamily, "received_bytes", "Bytes of requests."),
    (GaugeMetricFamily, "in_flight", "Calls that are not answered yet."),
    (GaugeMetricFamily, "connections", "Open connections."),
)
_WORK = (
    ("pieces", "Pieces of background work."),
    ("bytes", "Bytes of these pieces."),
    ("waited_seconds", "How long all pieces together have waited for their turn."),
)


def metrics(
    traffic: Mapping[TrafficClass, TrafficCounters], background: Mapping[Work, WorkCounters]
) -> Iterable[Metric]:
    for family, name, about in _TRAFFIC:
        by_class = family(f"threefs_storage_traffic_{name}", about, labels=["class"])
        for each, counters in traffic.items():
            by_class.add_metric([each.name.lower()], getattr(counters, name))
        yield by_class
    for name, about in _WORK:
        by_work = CounterMetricFamily(f"threefs_storage_background_{name}", about, labels=["work"])
        for work, counted in background.items():
            by_work.add_metric([work.value], getattr(counted, name))
        yield by_work
