"""A manager as metrics of Prometheus: whether it is the primary, and then how the cluster is.

The reasons of its health are those of `threefs health`, so both say the same. What only a caller can see (managers and
meta services that do not answer, the disks of the stores of meta services) is not among them: there a scrape fails, or
has the numbers.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from threefs.errors import NotPrimary
from threefs.health import chain_health, cluster_health, verdict
from threefs.health.answers import Answers
from threefs.rpc.grpc_binding import ControlServer
from threefs.telemetry import histogram
from threefs.wire import manager_pb2 as pb
from threefs_manager.service import Manager

_KINDS = {pb.STORAGE: "storage", pb.META: "meta"}
_NODE_STATES = ("alive", "silent", "ended", "not_started")


async def manager_metrics(manager: Manager) -> Iterable[Metric]:
    try:
        status = await manager.get_status(pb.GetStatusRequest(clients=True))
        routing = (await manager.get_routing(pb.GetRoutingRequest())).routing
    except NotPrimary:
        return [_primary(0)]
    return [_primary(1), *cluster_metrics(Answers(status, routing))]


def control_metrics(control: ControlServer) -> Iterable[Metric]:
    yield histogram.family(
        "threefs_control_call_duration_seconds",
        "From a request over gRPC to its answer.",
        ["method"],
        [([method], durations) for method, durations in sorted(control.durations.items())],
    )


def _primary(value: int) -> Metric:
    return GaugeMetricFamily("threefs_manager_primary", "1: this manager is the primary.", value)


def cluster_metrics(answers: Answers) -> Iterable[Metric]:
    """Only the primary knows these."""
    status = answers.status
    yield GaugeMetricFamily("threefs_manager_epoch", "Rises with each new primary.", status.manager_epoch)
    yield GaugeMetricFamily(
        "threefs_manager_routing_version", "Rises with each change of the routing.", status.routing_version
    )
    yield from _health(answers)
    yield from _nodes(status.nodes)
    yield from _chains(answers)
    yield CounterMetricFamily(
        "threefs_manager_link_removals", "Targets put out because a link had failed.", status.link_removals
    )
    yield GaugeMetricFamily(
        "threefs_manager_awaited_nodes", "Nodes that a restored store waits for.", len(status.awaited_nodes)
    )
    yield GaugeMetricFamily("threefs_manager_moves", "Targets that are moving.", len(status.moves))


def _health(answers: Answers) -> Iterable[Metric]:
    found = cluster_health.reasons(answers)
    yield GaugeMetricFamily(
        "threefs_health_status", "As `threefs health` says: 0 OK, 1 WARN, 2 ERR.", int(verdict.severity(found))
    )
    family = GaugeMetricFamily(
        "threefs_health_reasons", "How often `threefs health` gives this reason.", labels=["reason", "severity"]
    )
    for (code, severity), count in sorted(Counter((one.code, one.severity.name) for one in found).items()):
        family.add_metric([code, severity.lower()], count)
    yield family


def _nodes(rows: Iterable[pb.NodeStatus]) -> Iterable[Metric]:
    states: Counter[tuple[str, str]] = Counter()
    silence = GaugeMetricFamily(
        "threefs_manager_node_silence_seconds",
        "Since the last heartbeat, or since the primary began.",
        labels=["node", "kind"],
    )
    for row in rows:
        kind = _KINDS.get(row.node.kind, "other")
        states[kind, _node_state(row)] += 1
        if row.node.address:
            silence.add_metric([str(row.node.node_id), kind], row.silent_ms / 1000)
    yield _counts("threefs_manager_nodes", "Nodes.", states, kind=_KINDS.values(), state=_NODE_STATES)
    yield silence


def _node_state(row: pb.NodeStatus) -> str:
    if row.alive:
        return "alive"
    if row.ended:
        return "ended"
    return "silent" if row.node.address else "not_started"


def _chains(answers: Answers) -> Iterable[Metric]:
    states = Counter(("chains", one.state) for one in chain_health.chain_copies(answers))
    family = GaugeMetricFamily(
        "threefs_manager_chains", "Chains, by how many of their targets serve.", labels=["state"]
    )
    for state in chain_health.CHAIN_STATES:
        family.add_metric([state], states["chains", state])
    yield family


def _counts(
    name: str, about: str, found: Mapping[tuple[str, str], int], *, kind: Iterable[str], state: Iterable[str]
) -> Metric:
    """0 as well: a value that disappears cannot be told from a scrape that fails."""
    family = GaugeMetricFamily(name, about, labels=["kind", "state"])
    states = list(state)
    for one in kind:
        for each in states:
            family.add_metric([one, each], found.get((one, each), 0))
    return family
