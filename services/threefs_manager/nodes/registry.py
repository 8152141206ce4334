"""Registration of nodes: which process may register as a node, and what the record of the node becomes.

A registration that comes late, twice or from an unknown process must not put out a process that lives. So incarnations
are ordered, and only a dead process gives way to another one.
"""

import dataclasses
from collections.abc import Mapping

from threefs.env.net import parse_address
from threefs.errors import (
    AlreadyExists,
    InvalidArgument,
    NodeInUse,
    NotFound,
    StaleIncarnation,
    Unavailable,
    WrongCluster,
)
from threefs.ids import NodeId, TargetId
from threefs.routing import LocalState, Node, NodeKind, PublicState, Routing
from threefs.wire import manager_pb2 as pb
from threefs_manager.nodes.failure_detector import FailureDetector
from threefs_manager.placement.plan import MAX_NAME_CHARS, MAX_TARGETS_PER_DISK
from threefs_manager.store import restored_versions
from threefs_manager.store.cluster_store import Writer

MAX_FAILURE_CHARS = 1024  # kept of a target's report of a failure
MAX_RELEASE_CHARS = 64  # kept of the release that a node says, and of names and values of its configuration
MAX_CONFIGURATION_KEYS = 256  # kept of those that a node reports
MAX_STRAY_STORES = 1024  # kept of those that a node names
_LOCAL_STATES = frozenset(int(state) for state in LocalState)


async def register_node(
    writer: Writer, request: pb.RegisterRequest, failure_detector: FailureDetector, lease_s: float
) -> int:
    """Store the registration of a process; returns its node id. Raises what `Manager.register` raises."""
    cluster = writer.cluster
    if request.cluster_id and not cluster.cluster_id:
        raise Unavailable(restored_versions.wrong_store_message(request.cluster_id, ""))
    if not cluster.cluster_id:
        raise Unavailable("the cluster has no plan yet; make it with `threefs up`, or with the Init call")
    if request.cluster_id and request.cluster_id != cluster.cluster_id:
        raise WrongCluster(
            f"node {request.node_id} at {request.address} belongs to cluster {request.cluster_id}, "
            f"this manager to {cluster.cluster_id}"
        )
    nodes = writer.routing.nodes
    node = _find_or_create_node(request, nodes, cluster)
    check_incarnation(request, node, failure_detector, lease_s)
    for other in nodes.values():
        if other.address == request.address and other.node_id != node.node_id:
            if failure_detector.is_alive(other.node_id, lease_s):
                raise AlreadyExists(f"node {other.node_id} lives at {request.address}; choose another address")
            # It is dead, and another process has its port.
            writer.put_node(dataclasses.replace(other, address=""))
    if node.incarnation != request.incarnation:  # a repeat may come late, and the process may have other stores by now
        _record_stores(writer, request, started_before=node.incarnation != 0)
    known = restored_versions.highest_target(request)
    if known > cluster.next_target:  # the node was away when a restored manager asked what targets there were
        cluster.next_target = known
        writer.put_cluster()
    registered = dataclasses.replace(
        node, address=request.address, incarnation=request.incarnation, domain=_domain(node, request)
    )
    if registered != node:
        writer.put_node(registered)
    return node.node_id


def _domain(node: Node, request: pb.RegisterRequest) -> str:
    """That of a storage node is in the plan of the cluster, unless a restored store does not know it."""
    is_unknown = node.domain == restored_versions.unknown_domain(node.node_id)
    return request.domain if request.kind == pb.META or (is_unknown and request.domain) else node.domain


def check_incarnation(
    request: pb.RegisterRequest, node: Node, failure_detector: FailureDetector, lease_s: float
) -> None:
    """Raises StaleIncarnation for a registration that a newer one has overtaken, NodeInUse while another process lives
    as this node.

    A meta service that registers at the same address has its port, so the process before has ended. A storage process
    puts the targets of the process before out of their chains, so that one must be known to be dead.
    """
    if not node.incarnation or (request.incarnation, request.address) == (node.incarnation, node.address):
        return  # the first registration, or a repeat
    if request.incarnation <= node.incarnation:
        raise StaleIncarnation(
            f"node {node.node_id} has registered with incarnation {node.incarnation} at {node.address}; "
            f"{request.incarnation}, of {request.address}, is not newer"
        )
    same_place = request.address == node.address
    living = failure_detector.incarnation_alive(node, lease_s)
    if living and not (same_place and request.kind == pb.META):
        raise NodeInUse(
            f"node {node.node_id} is alive at {node.address}, so the process at {request.address} cannot be it; stop "
            "one of them, or give it another node_id. A process that has died is given up after "
            f"{lease_s:g} s of silence"
        )
    if living is None and node.address and not same_place:
        raise NodeInUse(
            f"node {node.node_id} was at {node.address} before this manager became the primary, and may still be "
            f"there; it is given up after {lease_s:g} s of silence"
        )


def _record_stores(writer: Writer, request: pb.RegisterRequest, *, started_before: bool) -> None:
    """Record the stores of the targets of a starting process. Raises Unavailable, NotFound."""
    for store in request.stores:
        target = writer.routing.targets.get(TargetId(store.target_id))
        if target is None or target.node_id != request.node_id:
            raise NotFound(f"node {request.node_id} has no target {store.target_id} in this cluster")
        state = writer.routing.chains[target.chain_id].state(target.target_id)
        if started_before and state in (PublicState.SERVING, PublicState.SYNCING):
            raise Unavailable(
                f"target {target.target_id} of node {request.node_id} is still {state.name.lower()} in its chain for "
                "the process before; it is put out first, so try again"
            )
        # A lastsrv target that has lost its store must not be taken for one that still has it.
        if target.store_id != store.store_id and (not target.store_id or state is not PublicState.LASTSRV):
            writer.put_target(dataclasses.replace(target, store_id=store.store_id))


def check_request(request: pb.RegisterRequest) -> None:
    """Raises InvalidArgument for a registration that no node can make."""
    if request.kind not in (pb.STORAGE, pb.META):
        raise InvalidArgument(f"a node registers as storage or meta service, not as kind {request.kind}")
    if len(request.address) > MAX_NAME_CHARS or len(request.domain) > MAX_NAME_CHARS:
        raise InvalidArgument(f"address and domain of a node have at most {MAX_NAME_CHARS} characters")
    _cut_release(request)
    host, port = parse_address(request.address)
    if port == 0 or host in ("0.0.0.0", "::"):
        raise InvalidArgument(f"{request.address!r} is not an address that others can connect to")
    if request.incarnation == 0:
        raise InvalidArgument(
            "a node registers with an incarnation, a number above 0 that rises with every start, not with 0"
        )


def check_reports(request: pb.HeartbeatRequest, routing: Routing) -> None:
    """Check that the reports of a node are possible; beyond that they are believed. Raises InvalidArgument."""
    if len(request.targets) > MAX_TARGETS_PER_DISK:
        raise InvalidArgument(
            f"node {request.node_id} reports {len(request.targets)} targets, more than {MAX_TARGETS_PER_DISK}"
        )
    if len({report.target_id for report in request.targets}) < len(request.targets):
        raise InvalidArgument(f"node {request.node_id} reports a target twice")
    for report in request.targets:
        target = routing.targets.get(TargetId(report.target_id))
        if target is None or target.node_id != request.node_id:
            raise InvalidArgument(f"node {request.node_id} has no target {report.target_id}")
        if report.local_state not in _LOCAL_STATES:
            raise InvalidArgument(f"target {report.target_id} reports state {report.local_state}, which does not exist")
        if len(report.failure) > MAX_FAILURE_CHARS:
            report.failure = report.failure[:MAX_FAILURE_CHARS]
    _cut_release(request)
    if request.HasField("configuration"):  # a look into it would set it
        _cut_configuration(request.configuration)
    if len(request.stray_stores.targets) > MAX_STRAY_STORES:
        del request.stray_stores.targets[MAX_STRAY_STORES:]
    if len(request.unreachable) > len(routing.nodes):
        raise InvalidArgument(
            f"node {request.node_id} cannot reach {len(request.unreachable)} nodes, and the cluster has "
            f"{len(routing.nodes)}"
        )


def _cut_release(request: pb.RegisterRequest | pb.HeartbeatRequest) -> None:
    if len(request.release) > MAX_RELEASE_CHARS:
        request.release = request.release[:MAX_RELEASE_CHARS]


def _cut_configuration(report: pb.ConfigurationReport) -> None:
    del report.keys[MAX_CONFIGURATION_KEYS:]
    for key in report.keys:
        key.name, key.value = key.name[:MAX_RELEASE_CHARS], key.value[:MAX_RELEASE_CHARS]
        key.reason = key.reason[:MAX_FAILURE_CHARS]


def _find_or_create_node(request: pb.RegisterRequest, nodes: Mapping[NodeId, Node], cluster: pb.ClusterRecord) -> Node:
    """The record of the node that registers. A meta service without an id gets a new one."""
    if request.kind == pb.META and request.node_id == 0:
        same = next((n for n in nodes.values() if n.kind is NodeKind.META and n.address == request.address), None)
        if same is not None:
            return same  # it was started again at its address, or it repeats a registration whose answer was lost
        cluster.next_meta_node += 1
        return Node(NodeId(cluster.next_meta_node), NodeKind.META, domain="", address="", incarnation=0)
    node = nodes.get(NodeId(request.node_id))
    if node is None or node.kind.value != request.kind:
        raise NotFound(
            f"the plan of this cluster has no {pb.NodeKind.Name(request.kind).lower()} node {request.node_id}"
        )
    return node
