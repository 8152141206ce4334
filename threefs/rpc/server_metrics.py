"""The calls, connections and memory of a server of the framed protocol, as metrics of Prometheus."""

from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from threefs.rpc.server import Server
from threefs.telemetry import histogram

_TRAFFIC = (
    (CounterMetricFamily, "calls", "Calls that were begun."),
    (CounterMetricFamily, "sent_bytes", "Bytes of answers."),
    (CounterMetricFamily, "received_bytes", "Bytes of requests."),
    (GaugeMetricFamily, "in_flight", "Calls that are not answered yet."),
    (GaugeMetricFamily, "connections", "Open connections."),
)


def server_metrics(server: Server) -> Iterable[Metric]:
    traffic = server.traffic
    for family, name, about in _TRAFFIC:
        by_class = family(f"threefs_rpc_{name}", about, labels=["class"])
        for each, counters in traffic.items():
            by_class.add_metric([each.name.lower()], getattr(counters, name))
        yield by_class
    yield histogram.family(
        "threefs_rpc_call_duration_seconds",
        "From the request to the end of its handler and its answer, by the class of the connection.",
        ["class", "method"],
        [
            ((each.name.lower(), method), durations)
            for each, counters in traffic.items()
            for method, durations in sorted(counters.durations.items())
        ],
    )
    yield CounterMetricFamily(
        "threefs_rpc_refused_calls",
        "Calls that were answered before they began: overload, start or stop.",
        server.refused_calls,
    )
    yield from _memory(server)


def _memory(server: Server) -> Iterable[Metric]:
    """The bytes that the process holds for its peers, and the answers that wait for a grant."""
    held = server.held
    for name, about, value in (
        ("held_answer_bytes", "Answers that wait for a GRANT, or are read for one.", held.bytes),
        ("lent_bytes", "Payload of requests and answers in flight.", server.pool.lent_bytes),
        ("queued_bytes", "Answers that wait for their peers to take them.", server.queued.total_bytes),
        ("request_bytes", "Requests in flight.", server.calls_bytes),
    ):
        yield GaugeMetricFamily(f"threefs_rpc_{name}", about, value)
    answers = CounterMetricFamily(
        "threefs_rpc_held_answers", "Answers that were announced, and what became of them.", labels=["event"]
    )
    for event in ("announced", "granted", "cancelled", "expired", "refused"):
        answers.add_metric([event], getattr(held, event))
    yield answers
