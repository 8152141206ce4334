"""The status of a cluster without processes, for tests of its health."""

from collections.abc import Mapping, Sequence

from threefs.health import cluster_health
from threefs.health.answers import Answers
from threefs.health.verdict import Reason
from threefs.wire import common_pb2
from threefs.wire import manager_pb2 as pb

GIB = 1 << 30
DAY_MS = 86_400_000


def chain(number: int, *states: pb.PublicState) -> pb.Chain:
    """The target of node N in it is N01 of chain 1, N02 of chain 2, ..."""
    members = [pb.ChainMember(target_id=100 * node + number, state=state) for node, state in enumerate(states, 1)]
    return pb.Chain(chain_id=number, version=1, members=members)


def storage(node_id: int, *reports: pb.TargetReport, alive: bool = True) -> pb.NodeStatus:
    node = pb.Node(node_id=node_id, kind=pb.STORAGE, address=f"host:{node_id}", domain=f"rack-{node_id}")
    return pb.NodeStatus(node=node, alive=alive, heard=True, targets=reports)


def report(target_id: int, *, free: int = 60, **more: object) -> pb.TargetReport:
    found = pb.TargetReport(
        target_id=target_id, disk=f"disk-{target_id // 100}", capacity_bytes=100 * GIB, free_bytes=free * GIB
    )
    for name, value in more.items():
        setattr(found, name, value)
    return found


def sound() -> pb.GetStatusReply:
    """Three storage nodes, two chains, one meta service: nothing to complain about."""
    nodes = [storage(n, report(100 * n + 1), report(100 * n + 2)) for n in (1, 2, 3)]
    meta = pb.NodeStatus(node=pb.Node(node_id=1001, kind=pb.META, address="host:9"), alive=True, heard=True)
    for row in (*nodes, meta):
        row.release = "0.2.0"
    return pb.GetStatusReply(
        cluster_id="c",
        manager_release="0.2.0",
        lease_ms=10_000,
        nodes=[*nodes, meta],
        chains=[chain(number, pb.SERVING, pb.SERVING, pb.SERVING) for number in (1, 2)],
        tables=[pb.ChainTable(table_id=1, chains=[1, 2], min_replicas=2)],
    )


def found_in(
    status: pb.GetStatusReply,
    managers: Sequence[str] = (),
    metas: Sequence[int] = (),
    disks: Mapping[int, common_pb2.StoreDisk] | None = None,
) -> list[Reason]:
    return cluster_health.reasons(Answers(status, routing_of(status), managers, metas, disks or {}))


def routing_of(status: pb.GetStatusReply) -> pb.Routing:
    return pb.Routing(
        targets=[
            pb.Target(target_id=member.target_id, node_id=member.target_id // 100, chain_id=one.chain_id)
            for one in status.chains
            for member in one.members
        ]
    )
