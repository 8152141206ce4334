"""Chain tables: the chains that new files are striped over.

A table keeps its chains for ever; more chains come as a new table, on the disks that the cluster has then. So no file
moves, and a layout names the table that it was made with.
"""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import structlog

from threefs.cluster.manager_records import FIRST_ADDED_TARGET
from threefs.env.worker_threads import run_in_thread
from threefs.errors import InvalidArgument, NotFound, Unavailable
from threefs.ids import ChainId, NodeId, TableId, TargetId
from threefs.routing import NodeKind, PublicState, Routing
from threefs.wire import manager_pb2 as pb
from threefs_manager.chains.holds import nodes_out
from threefs_manager.chains.move_executor import MoveExecutor, stored_moves
from threefs_manager.chains.moves import Move, draining_nodes
from threefs_manager.placement import chain_assignment, write_minimum
from threefs_manager.placement.plan import MAX_REPLICAS, MAX_TARGETS_PER_DISK, Disk, check_plan
from threefs_manager.routing_publisher import RoutingPublisher
from threefs_manager.store.cluster_store import Store, Writer

CALL_ID_BYTES = 16

#: Places chains on disks, off the event loop: that takes seconds in a large cluster. Last come the chains there are.
Place = Callable[[Sequence[Disk], int, int, Sequence[Sequence[NodeId]]], Awaitable[list[list[NodeId]]]]

_LOG = structlog.get_logger()


async def place_in_thread(
    disks: Sequence[Disk], replicas: int, targets_per_disk: int, others: Sequence[Sequence[NodeId]]
) -> list[list[NodeId]]:
    return await run_in_thread(chain_assignment.group_disks, disks, replicas, targets_per_disk, others)


async def create_table(
    store: Store, publisher: RoutingPublisher, place: Place, request: pb.CreateTableRequest
) -> pb.CreateTableReply:
    """Make a table of new chains on all disks that neither drain nor are out of service. A repeat of a call returns the
    table that it has made.

    Each chain begins as if all its targets had just died, and the first that is heard of serves it alone. So none gets
    a lease before its store is known, and a disk that is exchanged later is found.

    Raises InvalidArgument, Unavailable.
    """
    if len(request.call_id) != CALL_ID_BYTES:
        raise InvalidArgument(f"the id of the call has {len(request.call_id)} bytes, not {CALL_ID_BYTES}")
    routing, cluster = publisher.routing, await store.load_cluster()
    if not cluster.cluster_id:
        raise Unavailable("the cluster has no plan yet; make it with `threefs up`, or with the Init call")

    async def find(writer: Writer) -> pb.ChainTable | None:
        return next((one for one in await writer.chain_tables() if one.created_by == request.call_id), None)

    known, seen = await store.change(find)
    publisher.publish(seen)  # nobody may have heard yet of the table that an earlier attempt has made
    if known is not None:  # checked below, it would have no room beside itself
        return _reply(known)
    replicas = request.replicas or cluster.replicas
    targets_per_disk = request.targets_per_disk or cluster.targets_per_disk
    min_replicas = request.min_replicas or write_minimum.default_minimum(replicas)
    disks = usable_disks(routing)
    check_plan(disks, replicas, targets_per_disk)
    write_minimum.check_minimum(min_replicas, replicas)
    _check_room(routing, disks, targets_per_disk)
    count = len(disks) * targets_per_disk // replicas
    table = pb.ChainTable(min_replicas=min_replicas, replicas=replicas, created_by=request.call_id)
    if request.dry_run:
        _number(table, routing, count)
        return _reply(table)
    others = [[routing.targets[member.target_id].node_id for member in c.members] for c in routing.chains.values()]
    groups = await place(disks, replicas, targets_per_disk, others)

    async def write(writer: Writer) -> pb.ChainTable:
        known = await find(writer)
        if known is not None:
            return known
        if usable_disks(writer.routing) != disks:
            raise Unavailable("storage nodes have joined or left, or do not take targets any more; try again")
        _check_room(writer.routing, disks, targets_per_disk)  # again: another table may have been made since
        _number(table, writer.routing, count)
        numbers = itertools.count(max(writer.cluster.next_target, FIRST_ADDED_TARGET) + 1)
        chains, targets = chain_assignment.number_chains(
            groups, ChainId(table.chains[0]), lambda node: TargetId(next(numbers)), PublicState.LASTSRV
        )
        writer.cluster.next_target = targets[-1].target_id
        writer.put_chains(chains, targets)
        writer.put_table(table)
        return table

    made, routing = await store.change(write)
    publisher.publish(routing)
    _LOG.info("a chain table was made", table=made.table_id, chains=len(made.chains), replicas=made.replicas)
    return _reply(made)


def usable_disks(routing: Routing) -> list[Disk]:
    """The disks that new chains may use: of those that stay all that no administrator has taken out of service. A chain
    on such a disk would begin to serve there."""
    out = nodes_out(routing)
    return [disk for disk in _staying_disks(routing) if disk.node_id not in out]


def _staying_disks(routing: Routing) -> list[Disk]:
    """The disks that do not drain, and whose process has run."""
    return [
        Disk(node.node_id, node.domain)
        for node in sorted(routing.nodes.values(), key=lambda node: node.node_id)
        if node.kind is NodeKind.STORAGE and node.address and not node.draining
    ]


def _check_room(routing: Routing, disks: Sequence[Disk], targets_per_disk: int) -> None:
    """Raises InvalidArgument if a disk would have more targets than a process may have."""
    held = Counter(target.node_id for target in routing.targets.values())
    fullest = max(disks, key=lambda disk: held[disk.node_id])
    if held[fullest.node_id] + targets_per_disk > MAX_TARGETS_PER_DISK:
        raise InvalidArgument(
            f"node {fullest.node_id} has {held[fullest.node_id]} targets, and at most {MAX_TARGETS_PER_DISK} fit on a "
            f"disk: choose at most {MAX_TARGETS_PER_DISK - held[fullest.node_id]} targets per disk"
        )


def _number(table: pb.ChainTable, routing: Routing, count: int) -> None:
    """Give the table and its chains the next free numbers."""
    table.table_id = max(routing.tables) + 1
    first = max(routing.chains) + 1
    table.chains[:] = range(first, first + count)


def _reply(table: pb.ChainTable) -> pb.CreateTableReply:
    return pb.CreateTableReply(table=table, targets=len(table.chains) * table.replicas)


async def set_default_table(
    store: Store, publisher: RoutingPublisher, request: pb.SetDefaultTableRequest
) -> pb.SetDefaultTableReply:
    """New files take this table. Raises NotFound, and Unavailable while chains of it take no writes."""
    table_id = TableId(request.table_id)
    routing = publisher.routing
    _require_table(routing, table_id)
    minimum = routing.min_replicas.get(table_id, 1)
    unready = [c for c in routing.tables[table_id] if len(routing.chains[c].serving) < minimum]
    if unready:
        raise Unavailable(
            f"{len(unready)} of the {len(routing.tables[table_id])} chains of table {table_id} take no writes yet, for "
            f"example chain {unready[0]}: `threefs status` says what they lack"
        )
    if request.dry_run:
        return pb.SetDefaultTableReply(table_before=routing.default_table)

    async def write(writer: Writer) -> int:
        before = writer.cluster.default_table or TableId(1)
        if before != table_id:
            writer.cluster.default_table = table_id
            writer.put_cluster()
        return before

    before, routing = await store.change(write)
    publisher.publish(routing)
    return pb.SetDefaultTableReply(table_before=before)


async def set_replicas(
    store: Store, publisher: RoutingPublisher, executor: MoveExecutor, request: pb.SetReplicasRequest
) -> list[Move]:
    """Have chains of a table gain or lose copies until each has so many; returns the moves that are planned first. A
    minimum above the new number is lowered to it. Raises NotFound, InvalidArgument."""
    table_id, replicas = TableId(request.table_id), request.replicas
    routing = executor.routing_to_judge()
    _require_table(routing, table_id)
    _check_replicas(routing, table_id, replicas)
    wanted = dataclasses.replace(routing, replicas={**routing.replicas, table_id: replicas})
    planned = executor.plan(wanted, draining_nodes(routing), balance=False)
    if request.dry_run:
        return planned

    def was_for_another_number(move: Move) -> bool:
        return move.chain_id in routing.tables[table_id] and not (move.added and move.removed)

    async def write(writer: Writer) -> tuple[dict[ChainId, Move], bool]:
        table = await writer.table(table_id)
        assert table is not None, "a table is never removed"
        if table.replicas == replicas:
            return await stored_moves(writer), writer.cluster.balancing
        _check_replicas(writer.routing, table_id, replicas)  # again: nodes may have been drained or removed since
        table.replicas, table.min_replicas = replicas, min(table.min_replicas or 1, replicas)
        writer.put_table(table)
        return await executor.withdraw(writer, was_for_another_number), writer.cluster.balancing

    (left, balancing), published = await store.change(write)
    publisher.publish(published)
    executor.take_over(left, published, balancing=balancing)
    executor.plan_soon()
    return planned


def _check_replicas(routing: Routing, table_id: TableId, replicas: int) -> None:
    """Raises InvalidArgument if the chains of the table cannot have so many replicas."""
    if not 1 <= replicas <= MAX_REPLICAS:
        raise InvalidArgument(f"replicas must be 1 to {MAX_REPLICAS}, not {replicas}")
    disks = _staying_disks(routing)  # also one that is out of service for a while: its copies wait until it is back
    if len(disks) < replicas:
        raise InvalidArgument(
            f"{replicas} replicas need {replicas} storage nodes, and the cluster has {len(disks)} that do not drain: "
            "add nodes first with `threefs node add`"
        )
    more = len(routing.tables[table_id]) * (replicas - routing.replicas.get(table_id, replicas))
    _check_room(routing, disks, max(0, math.ceil(more / len(disks))))


async def set_min_replicas(
    store: Store, publisher: RoutingPublisher, request: pb.SetMinReplicasRequest
) -> pb.SetMinReplicasReply:
    """Set how many targets of a chain must serve for it to take writes. Raises NotFound, InvalidArgument."""
    _require_table(publisher.routing, TableId(request.table_id))

    async def write(writer: Writer) -> None:
        table = await writer.table(request.table_id)
        assert table is not None, "a table is never removed"
        write_minimum.check_minimum(request.min_replicas, table.replicas)
        if table.min_replicas != request.min_replicas:
            table.min_replicas = request.min_replicas
            writer.put_table(table)

    _, routing = await store.change(write)
    publisher.publish(routing)
    return pb.SetMinReplicasReply()


def _require_table(routing: Routing, table_id: TableId) -> None:
    """Raises NotFound."""
    if table_id not in routing.tables:
        raise NotFound(f"chain table {table_id} does not exist; `threefs table ls` lists the tables")
