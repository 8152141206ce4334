"""The statistics of a meta service as metrics of Prometheus."""

from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from threefs.wire import meta_pb2 as pb

_WAITING = ("removals_waiting", "leases_ending", "charges_waiting")


def metrics(found: pb.StatisticsReply, *, store_answers: bool = True) -> Iterable[Metric]:
    """Without an answer of the store it is not known what waits there."""
    assert store_answers or not found.removals_waiting, "only the store says what waits"
    yield GaugeMetricFamily("threefs_meta_store_answers", "0: the store did not answer this scrape.", store_answers)
    yield GaugeMetricFamily("threefs_meta_uptime_seconds", "Since the service started.", found.uptime_ms / 1000)
    yield from _calls(found)
    yield CounterMetricFamily("threefs_meta_transactions", "Transactions that ended.", found.transactions)
    again = CounterMetricFamily(
        "threefs_meta_transactions_again", "Transactions that had to be tried again.", labels=["error"]
    )
    for error, count in sorted(found.again.items()):
        again.add_metric([error], count)
    yield again
    for name in _WAITING if store_answers else ():
        yield GaugeMetricFamily(f"threefs_meta_{name}", "Work in the store; at most 1000.", getattr(found, name))
    yield from _quotas(found.quotas)


def _calls(found: pb.StatisticsReply) -> Iterable[Metric]:
    for field, about in (
        ("calls", "Calls that ended."),
        ("names", "Names in these calls."),
        ("refused", "Calls that ended in an error that is an answer, for example no such file."),
        ("failed", "Calls that could not be answered."),
        ("seconds", "How long all calls took together."),
    ):
        name = "threefs_meta_calls" if field == "calls" else f"threefs_meta_calls_{field}"
        family = CounterMetricFamily(name, about, labels=["method"])
        for one in found.calls:
            family.add_metric([one.method], getattr(one, field))
        yield family


def _quotas(quotas: Iterable[pb.Quota]) -> Iterable[Metric]:
    rows = [(["tree", str(one.tree)] if one.tree else ["user", str(one.uid)], one) for one in quotas]
    for field in ("used_bytes", "used_inodes", "limit_bytes", "limit_inodes"):
        family = GaugeMetricFamily(
            f"threefs_meta_quota_{field}", "Of a quota; a limit of 0 is none.", labels=["of", "id"]
        )
        for labels, one in rows:
            family.add_metric(labels, getattr(one, field))
        yield family
