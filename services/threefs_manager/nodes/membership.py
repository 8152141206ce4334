"""Storage nodes that join, drain and leave a cluster while it runs."""

import dataclasses
from collections.abc import Iterable, Sequence

from threefs.cluster.manager_records import FIRST_META_NODE
from threefs.errors import AlreadyExists, InvalidArgument, NotFound, Unavailable
from threefs.ids import ChainId, NodeId
from threefs.routing import Node, NodeKind, Routing
from threefs.wire import manager_pb2 as pb
from threefs_manager.chains.move_executor import MoveExecutor, stored_moves
from threefs_manager.chains.moves import Move, draining_nodes
from threefs_manager.placement.plan import MAX_NAME_CHARS
from threefs_manager.routing_publisher import RoutingPublisher
from threefs_manager.store.cluster_store import Store, Writer
from threefs_manager.store.restored_versions import unknown_domain

MAX_ADDED_NODES = 4096  # in one call


def are_known(routing: Routing, request: pb.AddNodesRequest) -> bool:
    """Whether the cluster has all these nodes, and knows their failure domains."""
    nodes = [routing.nodes.get(NodeId(node.node_id)) for node in request.storage]
    return all(node is not None and node.domain != unknown_domain(node.node_id) for node in nodes)


async def add_nodes(store: Store, publisher: RoutingPublisher, request: pb.AddNodesRequest) -> list[int]:
    """Store the nodes; those that the cluster has already, in the same domain, are left as they are. One whose domain
    was unknown gets it.

    Returns the new ones. Raises InvalidArgument, AlreadyExists, Unavailable.
    """
    _check_planned(request.storage)
    if request.dry_run:
        _require_plan(publisher.routing.cluster_id)
        changed = _changed_nodes(publisher.routing, request.storage)
        return [node.node_id for node in changed if node.node_id not in publisher.routing.nodes]

    async def write(writer: Writer) -> list[int]:
        _require_plan(writer.cluster.cluster_id)
        changed, known = _changed_nodes(writer.routing, request.storage), set(writer.routing.nodes)
        for node in changed:
            writer.put_node(node)
        return [node.node_id for node in changed if node.node_id not in known]

    added, routing = await store.change(write)
    publisher.publish(routing)
    return added


def _changed_nodes(routing: Routing, planned: Iterable[pb.PlannedNode]) -> list[Node]:
    """Those that are not in the routing, or there without a known failure domain. Raises AlreadyExists for one that is
    there in another domain."""
    changed = []
    for node in planned:
        domain = node.domain or f"node-{node.node_id}"
        known = routing.nodes.get(NodeId(node.node_id))
        if known is None:
            changed.append(Node(NodeId(node.node_id), NodeKind.STORAGE, domain, address="", incarnation=0))
        elif known.domain == unknown_domain(node.node_id):
            changed.append(dataclasses.replace(known, domain=domain))
        elif known.domain != domain:
            raise AlreadyExists(f"node {node.node_id} is in failure domain {known.domain!r}, not {domain!r}")
    return changed


def _require_plan(cluster_id: str) -> None:
    """Raises Unavailable for a store without a cluster: a new one, or an empty one in the place of the right one. A
    routing of such a store would pass for that of a cluster."""
    if not cluster_id:
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
    routing = executor.routing_to_judge()
    node = _storage_node(request.node_id, routing)
    draining = draining_nodes(routing) - {node}
    if request.draining:
        draining.add(node)
        _check_room(routing, draining)
    planned = executor.plan(routing, draining, balance=False)
    if request.dry_run:
        return planned

    def keeps_its_target(move: Move) -> bool:
        removed = routing.targets.get(move.removed)
        return not request.draining and removed is not None and removed.node_id == node

    async def write(writer: Writer) -> tuple[dict[ChainId, Move], bool]:
        _require_plan(writer.cluster.cluster_id)
        known = writer.routing.nodes[_storage_node(node, writer.routing)]
        if request.draining:  # again: other calls may have taken nodes that would have stayed, or asked for more copies
            _check_room(writer.routing, draining_nodes(writer.routing) | {node})
        if known.draining != request.draining:
            writer.put_node(dataclasses.replace(known, draining=request.draining))
        return await executor.withdraw(writer, keeps_its_target), writer.cluster.balancing

    (left, balancing), published = await store.change(write)
    publisher.publish(published)
    executor.take_over(left, published, balancing=balancing)
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


async def remove_node(
    store: Store, publisher: RoutingPublisher, executor: MoveExecutor, request: pb.RemoveNodeRequest
) -> None:
    """Drop the record of a node that holds nothing any more. Raises NotFound, InvalidArgument."""
    node = _storage_node(request.node_id, publisher.routing)
    if request.dry_run:
        _check_removable(node, publisher.routing, [move.added_node for move in executor.moves.values()])
        return

    async def write(writer: Writer) -> None:
        _require_plan(writer.cluster.cluster_id)
        _check_removable(node, writer.routing, [move.added_node for move in await writer.moves()])
        for target in writer.routing.targets.values():
            if target.node_id == node:
                writer.drop_target(target.target_id)
        writer.drop_node(node)

    _, routing = await store.change(write)
    publisher.publish(routing)


def _check_removable(node: NodeId, routing: Routing, filled: Sequence[int]) -> None:
    """Raises InvalidArgument if the node has a target of a chain, is among those that get one, or is needed for as many
    copies as chains are to have."""
    members = sum(t.node_id == node and not routing.is_removed(t) for t in routing.targets.values())
    coming = filled.count(node)
    if members or coming:
        raise InvalidArgument(
            f"node {node} has {members} targets, and {coming} are on their way to it: run "
            f"`threefs node drain {node}` first, and wait until it is empty"
        )
    known = routing.nodes.get(node)  # none: an attempt of unknown outcome has removed it
    if known is not None and not known.draining:  # else it does not count already
        _check_room(routing, draining_nodes(routing) | {node})


async def rebalance(
    store: Store, publisher: RoutingPublisher, executor: MoveExecutor, request: pb.RebalanceRequest
) -> list[Move]:
    """Have moves planned until all disks carry equally many targets; returns those that are planned first."""
    routing = executor.routing_to_judge()
    planned = executor.plan(routing, draining_nodes(routing), balance=True)
    if request.dry_run:
        return planned

    async def write(writer: Writer) -> dict[ChainId, Move]:
        _require_plan(writer.cluster.cluster_id)
        writer.cluster.balancing = True
        writer.put_cluster()
        return await stored_moves(writer)

    stored, routing = await store.change(write)
    publisher.publish(routing)
    executor.take_over(stored, routing, balancing=True)
    executor.plan_soon()
    return planned


def _storage_node(node_id: int, routing: Routing) -> NodeId:
    node = routing.nodes.get(NodeId(node_id))
    if node is None or node.kind is not NodeKind.STORAGE:
        raise NotFound(f"the cluster has no storage node {node_id}; `threefs node ls` lists them")
    return node.node_id
