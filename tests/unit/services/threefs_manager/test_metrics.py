from collections.abc import Iterable

from prometheus_client import Metric
from threefs_manager.metrics import cluster_metrics, control_metrics

from tests.harness.cluster_status import chain, routing_of, sound
from threefs.health.answers import Answers
from threefs.rpc.grpc_binding import ControlServer
from threefs.telemetry.histogram import Histogram
from threefs.wire import manager_pb2 as pb


def samples(families: Iterable[Metric]) -> dict[tuple[str, ...], float]:
    return {(sample.name, *sample.labels.values()): sample.value for each in families for sample in each.samples}


def found_in(status: pb.GetStatusReply) -> dict[tuple[str, ...], float]:
    return samples(cluster_metrics(Answers(status, routing_of(status))))


def test_the_metrics_say_what_health_says() -> None:
    status = sound()
    before = found_in(status)
    assert before["threefs_health_status",] == 0
    assert not any(name == "threefs_health_reasons" for name, *_ in before)
    status.chains[1].CopyFrom(chain(2, pb.SERVING, pb.OFFLINE, pb.SYNCING))
    status.nodes[1].alive, status.nodes[1].silent_ms = False, 34_200
    after = found_in(status)
    assert after["threefs_health_status",] == 2
    assert after["threefs_health_reasons", "chain_below_minimum", "err"] == 1
    assert after["threefs_health_reasons", "node_silent", "warn"] == 1
    assert after["threefs_manager_node_silence_seconds", "2", "storage"] == 34.2


def test_nodes_and_chains_are_counted_by_state_and_zeros_are_shown() -> None:
    status = sound()
    status.chains[1].CopyFrom(chain(2, pb.SERVING, pb.SERVING, pb.SYNCING))
    status.nodes[2].alive, status.nodes[2].ended = False, True
    status.nodes.add(node=pb.Node(node_id=4, kind=pb.STORAGE))
    found = found_in(status)
    assert {state: found["threefs_manager_chains", state] for state in ("full", "degraded", "unserved")} == {
        "full": 1,
        "degraded": 1,
        "unserved": 0,
    }
    states = ("alive", "silent", "ended", "not_started")
    assert [found["threefs_manager_nodes", "storage", state] for state in states] == [2, 0, 1, 1]
    assert [found["threefs_manager_nodes", "meta", state] for state in states] == [1, 0, 0, 0]
    assert ("threefs_manager_node_silence_seconds", "4", "storage") not in found


async def test_calls_over_grpc_are_timed_by_method() -> None:
    control = ControlServer()
    control.durations["Heartbeat"] = durations = Histogram()
    durations.observe(0.25)
    found = samples(control_metrics(control))
    assert found["threefs_control_call_duration_seconds_count", "Heartbeat"] == 1
    assert found["threefs_control_call_duration_seconds_sum", "Heartbeat"] == 0.25
    await control.stop(0)
