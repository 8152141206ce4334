"""The counters of a storage service as metrics of Prometheus."""

from collections.abc import Iterable, Mapping

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from threefs.rpc.server import Server
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


def metrics(server: Server, background: Mapping[Work, WorkCounters]) -> Iterable[Metric]:
    traffic = server.traffic
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
    yield from _memory(server)


def _memory(server: Server) -> Iterable[Metric]:
    """What the process holds for its peers, and the answers that wait for a grant."""
    held = server.held
    for name, about, value in (
        ("held_answer_bytes", "Answers that wait for a GRANT, or are read for one.", held.bytes),
        ("lent_bytes", "Payload of requests and answers in flight.", server.pool.lent_bytes),
        ("queued_bytes", "Answers that wait for their peers to take them.", server.queued.total_bytes),
        ("request_bytes", "Requests in flight.", server.calls_bytes),
    ):
        yield GaugeMetricFamily(f"threefs_storage_{name}", about, value)
    answers = CounterMetricFamily(
        "threefs_storage_held_answers", "Answers that were announced, and what became of them.", labels=["event"]
    )
    for event in ("announced", "granted", "cancelled", "expired", "refused"):
        answers.add_metric([event], getattr(held, event))
    yield answers
