"""Who may register as a node, and what its record becomes.

A REGISTER that comes late, twice or from a stranger must not put out a process that lives: incarnations are ordered,
and only a dead process gives way to another one.
"""

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
from threefs.ids import ChainId, TargetId
from threefs.routing import LocalState, PublicState, Routing
from threefs.wire import manager_pb2 as pb
from threefs_manager import restore
from threefs_manager.cluster_store import Writer
from threefs_manager.membership import Membership
from threefs_manager.placement import MOST_TARGETS_PER_DISK

MOST_NAME_CHARS = 255
MOST_FAILURE_CHARS = 1024  # that are kept of what a target says of its disk
_LOCAL_STATES = frozenset(int(state) for state in LocalState)


async def register_node(writer: Writer, request: pb.RegisterRequest, membership: Membership, lease_s: float) -> int:
    """Write down that a process registers; its node id. Raises what `Manager.register` does."""
    cluster = writer.cluster
    if request.cluster_id and not cluster.cluster_id:
        raise Unavailable(restore.wrong_store_message(request.cluster_id, ""))
    if not cluster.cluster_id:
        raise Unavailable("the cluster has no plan yet; `threefs up` or the Init call gives it one")
    if request.cluster_id and request.cluster_id != cluster.cluster_id:
        raise WrongCluster(
            f"node {request.node_id} at {request.address} belongs to cluster {request.cluster_id}, "
            f"this manager to {cluster.cluster_id}"
        )
    nodes = await writer.nodes()
    node = _find_or_create_node(request, nodes, cluster)
    check_incarnation(request, node, membership, lease_s)
    for other in nodes:
        if other.address == request.address and other.node_id != node.node_id:
            if membership.is_alive(other.node_id, lease_s):
                raise AlreadyExists(f"node {other.node_id} is at {request.address}")
            other.address = ""  # it is gone, and its port has been taken
            writer.put_node(other)
    await _record_stores(writer, request, started_before=node.incarnation not in (0, request.incarnation))
    domain = request.domain if request.kind == pb.META else node.domain
    if (node.address, node.incarnation, node.domain) != (request.address, request.incarnation, domain):
        node.address, node.incarnation, node.domain = request.address, request.incarnation, domain
        writer.put_node(node)
    return node.node_id


def check_incarnation(request: pb.RegisterRequest, node: pb.Node, membership: Membership, lease_s: float) -> None:
    """Raises StaleIncarnation for a REGISTER that was overtaken, NodeInUse while another process lives as this node.

    A meta service that registers where it was has taken its own port: the process before is gone. A storage process
    puts the targets of the one before out of their chains, so it must be known to be dead.
    """
    if not node.incarnation or (request.incarnation, request.address) == (node.incarnation, node.address):
        return  # the first one, or a repeat
    if request.incarnation <= node.incarnation:
        raise StaleIncarnation(
            f"node {node.node_id} has registered with incarnation {node.incarnation} at {node.address}; "
            f"{request.incarnation}, of {request.address}, is not newer"
        )
    same_place = request.address == node.address
    living = membership.incarnation_alive(node, lease_s)
    if living and not (same_place and request.kind == pb.META):
        raise NodeInUse(
            f"node {node.node_id} is alive at {node.address}, so the process at {request.address} cannot be it; stop "
            "one of them, or give it a node_id of its own. A process that has died is given up after "
            f"{lease_s:g} s of silence"
        )
    if living is None and node.address and not same_place:
        raise NodeInUse(
            f"node {node.node_id} was at {node.address} before this manager became the primary, and may still be "
            f"there; it is given up after {lease_s:g} s of silence"
        )


async def _record_stores(writer: Writer, request: pb.RegisterRequest, *, started_before: bool) -> None:
    """Note what the targets of a starting process keep. Raises Unavailable, NotFound."""
    for store in request.stores:
        target = await writer.target(store.target_id)
        if target is None or target.node_id != request.node_id:
            raise NotFound(f"node {request.node_id} has no target {store.target_id} in this cluster")
        state = (await writer.chain(ChainId(target.chain_id))).state(TargetId(target.target_id))
        if started_before and state in (PublicState.SERVING, PublicState.SYNCING):
            raise Unavailable(
                f"target {target.target_id} of node {request.node_id} is still {state.name.lower()} in its chain since "
                "the process was started before"
            )
        # A lastsrv target that has lost what it kept must not be taken for one that still has it.
        if target.store_id != store.store_id and (not target.store_id or state is not PublicState.LASTSRV):
            target.store_id = store.store_id
            writer.put_target(target)


def check_request(request: pb.RegisterRequest) -> None:
    """Raises InvalidArgument."""
    if request.kind not in (pb.STORAGE, pb.META):
        raise InvalidArgument(f"a node registers as storage or meta service; {request.kind} is no kind of node")
    if len(request.address) > MOST_NAME_CHARS or len(request.domain) > MOST_NAME_CHARS:
        raise InvalidArgument(f"address and domain of a node have at most {MOST_NAME_CHARS} characters")
    host, port = parse_address(request.address)
    if port == 0 or host in ("0.0.0.0", "::"):
        raise InvalidArgument(f"{request.address!r} is not an address that others can connect to")
    if request.incarnation == 0:
        raise InvalidArgument("a node registers with an incarnation, higher at every start, not 0")


def check_reports(request: pb.HeartbeatRequest, routing: Routing) -> None:
    """What a node says of its targets is believed, but only what can be. Raises InvalidArgument."""
    if len(request.targets) > MOST_TARGETS_PER_DISK:
        raise InvalidArgument(f"node {request.node_id} reports {len(request.targets)} targets")
    if len({report.target_id for report in request.targets}) < len(request.targets):
        raise InvalidArgument(f"node {request.node_id} reports a target twice")
    for report in request.targets:
        target = routing.targets.get(TargetId(report.target_id))
        if target is None or target.node_id != request.node_id:
            raise InvalidArgument(f"node {request.node_id} has no target {report.target_id}")
        if report.local_state not in _LOCAL_STATES:
            raise InvalidArgument(f"target {report.target_id} reports state {report.local_state}, which does not exist")
        if len(report.failure) > MOST_FAILURE_CHARS:
            report.failure = report.failure[:MOST_FAILURE_CHARS]


def _find_or_create_node(request: pb.RegisterRequest, nodes: list[pb.Node], cluster: pb.ClusterRecord) -> pb.Node:
    """The record of the node that registers; a meta service without an id gets one."""
    if request.kind == pb.META and request.node_id == 0:
        same = next((n for n in nodes if n.kind == pb.META and n.address == request.address), None)
        if same is not None:
            return same  # started again where it was, or the answer to this start was lost
        cluster.next_meta_node += 1
        return pb.Node(node_id=cluster.next_meta_node, kind=pb.META)
    node = next((n for n in nodes if n.node_id == request.node_id), None)
    if node is None or node.kind != request.kind:
        raise NotFound(
            f"the plan of this cluster has no {pb.NodeKind.Name(request.kind).lower()} node {request.node_id}"
        )
    return node
