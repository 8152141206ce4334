"""Storage nodes that join, drain and leave a cluster while it runs."""

from collections.abc import Sequence

from threefs.cluster.manager_records import FIRST_META_NODE
from threefs.errors import AlreadyExists, InvalidArgument, NotFound, Unavailable
from threefs.ids import ChainId, NodeId
from threefs.routing import NodeKind, Routing
from threefs.wire import manager_pb2 as pb
from threefs_manager.chains.move_executor import MoveExecutor
from threefs_manager.chains.moves import Move
from threefs_manager.placement.plan import MAX_NAME_CHARS
from threefs_manager.routing_publisher import RoutingPublisher
from threefs_manager.store.cluster_store import Store, Writer

MAX_ADDED_NODES = 4096  # in one call


async def add_nodes(store: Store, publisher: RoutingPublisher, request: pb.AddNodesRequest) -> None:
    """Store the nodes; those that the cluster has already, in the same domain, are left as they are.

    Raises InvalidArgument, AlreadyExists.
    """
    _check_planned(request.storage)

    async def write(writer: Writer) -> None:
        _require_plan(writer)
        known = {node.node_id: node for node in await writer.nodes()}
        for planned in request.storage:
            domain = planned.domain or f"node-{planned.node_id}"
            node = known.get(planned.node_id)
            if node is None:
                writer.put_node(pb.Node(node_id=planned.node_id, kind=pb.STORAGE, domain=domain))
            elif node.domain != domain:
                raise AlreadyExists(f"node {node.node_id} is in failure domain {node.domain!r}, not {domain!r}")

    _, routing = await store.change(write)
    publisher.publish(routing)


def _require_plan(writer: Writer) -> None:
    """Raises Unavailable for a store without a cluster: a new one, or an empty one in the place of the right one. A
    routing of such a store would pass for that of a cluster."""
    if not writer.cluster.cluster_id:
        raise Unavailable("the cluster has no plan yet; make it with `threefs up`, or with the Init call")


def _check_planned(nodes: Sequence[pb.PlannedNode]) -> None:
    if not 1 <= len(nodes) <= MAX_ADDED_NODES:
        raise InvalidArgument(f"1 to {MAX_ADDED_NODES} nodes are added at once, not {len(nodes)}")
    seen: set[int] = set()
    for node in nodes:
        if not 1 <= node.node_id < FIRST_META_NODE:
            raise InvalidArgument(f"ids of storage nodes must be 1 to {FIRST_META_NODE - 1}, not {node.node_id}")
        if node.node_id in seen:
            raise InvalidArgument(f"node {node.node_id} is named twice")
        if len(node.domain) > MAX_NAME_CHARS:
            raise InvalidArgument(
                f"the failure domain of node {node.node_id} has {len(node.domain)} characters; at most "
                f"{MAX_NAME_CHARS} are allowed"
            )
        seen.add(node.node_id)


async def set_draining(
    store: Store, publisher: RoutingPublisher, executor: MoveExecutor, request: pb.SetDrainingRequest
) -> list[Move]:
    """Mark the node; returns the moves that are planned first. Raises NotFound, InvalidArgument."""
    routing = publisher.routing
    node = _storage_node(request.node_id, routing)
    draining = {n.node_id for n in routing.nodes.values() if n.draining and n.node_id != node}
    if request.draining:
        draining.add(node)
        _check_room(routing, draining)
    planned = executor.plan(routing, draining, balance=False)
    if request.dry_run:
        return planned

    def keeps_its_target(move: Move) -> bool:
        removed = routing.targets.get(move.removed)
        return not request.draining and removed is not None and removed.node_id == node

    async def write(writer: Writer) -> dict[ChainId, Move | None]:
        _require_plan(writer)
        for known in await writer.nodes():
            if known.node_id == node and known.draining != request.draining:
                known.draining = request.draining
                writer.put_node(known)
        return await executor.withdraw(writer, keeps_its_target)

    withdrawn, published = await store.change(write)
    publisher.publish(published)
    executor.on_withdrawn(withdrawn)
    executor.plan_soon()
    return planned


def _check_room(routing: Routing, draining: set[NodeId]) -> None:
    """Raises InvalidArgument if the disks that stay are fewer than the replicas of a chain."""
    storage = [n.node_id for n in routing.nodes.values() if n.kind is NodeKind.STORAGE]
    staying = [node for node in storage if node not in draining]
    most = max(routing.replicas.values(), default=0)
    if len(staying) < most:
        raise InvalidArgument(
            f"chains have {most} replicas, and only {len(staying)} storage nodes would stay: add nodes first with "
            "`threefs node add`"
        )


async def remove_node(store: Store, publisher: RoutingPublisher, request: pb.RemoveNodeRequest) -> None:
    """Drop the record of a node that holds nothing any more. Raises NotFound, InvalidArgument."""
    node = _storage_node(request.node_id, publisher.routing)

    async def write(writer: Writer) -> None:
        _require_plan(writer)
        routing = await writer.routing()
        held = [t.target_id for t in routing.targets.values() if t.node_id == node]
        members = [t for t in held if not routing.is_removed(routing.targets[t])]
        coming = [move for move in await writer.moves() if move.added_node == node]
        if members or coming:
            raise InvalidArgument(
                f"node {node} has {len(members)} targets, and {len(coming)} are on their way to it: run "
                f"`threefs node drain {node}` first, and wait until it is empty"
            )
        for target_id in held:
            writer.drop_target(target_id)
        writer.drop_node(node)

    _, routing = await store.change(write)
    publisher.publish(routing)


async def rebalance(
    store: Store, publisher: RoutingPublisher, executor: MoveExecutor, request: pb.RebalanceRequest
) -> list[Move]:
    """Have moves planned until all disks carry equally many targets; returns those that are planned first."""
    routing = publisher.routing
    draining = {node.node_id for node in routing.nodes.values() if node.draining}
    planned = executor.plan(routing, draining, balance=True)
    if request.dry_run:
        return planned

    async def write(writer: Writer) -> None:
        _require_plan(writer)
        writer.cluster.balancing = True
        writer.put_cluster()

    _, routing = await store.change(write)
    publisher.publish(routing)
    executor.balancing = True
    executor.plan_soon()
    return planned


def _storage_node(node_id: int, routing: Routing) -> NodeId:
    node = routing.nodes.get(NodeId(node_id))
    if node is None or node.kind is not NodeKind.STORAGE:
        raise NotFound(f"the cluster has no storage node {node_id}; `threefs node ls` lists them")
    return node.node_id
