"""The answers of the services of a cluster, and how nodes and targets are named to people."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from threefs.wire import common_pb2
from threefs.wire import manager_pb2 as pb

_SHOWN = 8  # names in one reason; `threefs status` has the others


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of the services of a cluster."""

    status: pb.GetStatusReply
    routing: pb.Routing
    silent_managers: Sequence[str] = ()  # addresses that did not answer
    silent_meta_nodes: Sequence[int] = ()  # alive by their heartbeats, but they did not answer a call
    meta_disks: Mapping[int, common_pb2.StoreDisk] = field(default_factory=dict)  # of embedded stores, by the node
    _node_of: dict[int, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._node_of.update((target.target_id, target.node_id) for target in self.routing.targets)

    @property
    def lease_s(self) -> float:
        return self.status.lease_ms / 1000

    def nodes(self, kind: pb.NodeKind) -> list[pb.NodeStatus]:
        return [row for row in self.status.nodes if row.node.kind == kind]

    def reports(self) -> Iterator[tuple[pb.NodeStatus, pb.TargetReport]]:
        """Of the storage nodes that are alive: a report of a silent one may be true no more."""
        for row in self.nodes(pb.STORAGE):
            if row.alive:
                for report in row.targets:
                    yield row, report

    def target_name(self, target_id: int) -> str:
        node = self._node_of.get(target_id)
        return f"target {target_id}" + (f" of node {node}" if node else "")

    def node_of(self, target_id: int) -> int:
        """0 if it is not known."""
        return self._node_of.get(target_id, 0)


def node_name(node: pb.Node) -> str:
    kind = "meta service" if node.kind == pb.META else "storage node"
    where = ", ".join(part for part in (node.address, f"domain {node.domain}" if node.domain else "") if part)
    return f"{kind} {node.node_id}" + (f" ({where})" if where else "")


def listed(names: Iterable[str]) -> str:
    """The first names, and how many there are besides."""
    found = list(names)
    rest = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + rest
