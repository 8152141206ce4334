import dataclasses
import os

from threefs_bench.load.service_cost import Service, ServiceMeter, named

from threefs.ids import NodeId
from threefs.routing import EMPTY, Node, NodeKind


def test_services_that_have_registered_are_named() -> None:
    nodes = {
        NodeId(1): Node(NodeId(1), NodeKind.STORAGE, "d", "127.0.0.1:1", 1),
        NodeId(2): Node(NodeId(2), NodeKind.META, "d", "127.0.0.1:2", 1),
        NodeId(3): Node(NodeId(3), NodeKind.STORAGE, "d", "", 0),
    }
    routing = dataclasses.replace(EMPTY, nodes=nodes)
    assert named(routing) == [("storage", "127.0.0.1:1"), ("meta", "127.0.0.1:2")]


def test_cpu_is_counted_by_role_and_dead_processes_cost_nothing() -> None:
    meter = ServiceMeter([Service("meta", os.getpid()), Service("storage", 1 << 22)])
    meter.begin()
    while not (found := meter.end())["meta"]:
        sum(range(100_000))
    assert set(found) == {"meta"}
    assert ServiceMeter(()).end() == {}
