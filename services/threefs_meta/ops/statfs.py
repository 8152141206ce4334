"""Space of the whole cluster, as the storage processes have last reported it to the manager, and the number of
inodes."""

from threefs.errors import Unavailable
from threefs.ids import ROOT
from threefs.routing import Routing
from threefs.wire import manager_pb2
from threefs.wire import meta_pb2 as pb
from threefs_meta.context import Context
from threefs_meta.store import keys
from threefs_meta.store.counters import read_counter
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import run_readonly


async def statfs(context: Context, request: pb.StatFsRequest) -> pb.StatFsReply:
    status = await context.status()
    _check_heard(status, context.routing())
    reply = space(status)

    async def work(ns: Namespace) -> int:
        # Numbers that another service has reserved, or that a crash has left of a block, count too.
        given = await read_counter(ns.tx, keys.NEXT_INODE) - ROOT - context.allocator.left
        return given - await read_counter(ns.tx, keys.REMOVED_INODES)

    reply.inodes = max(1, await run_readonly(context, work))
    return reply


def _check_heard(status: manager_pb2.GetStatusReply, routing: Routing) -> None:
    """Raises Unavailable while a new primary has not heard of all disks that serve: the sum would be too small, and a
    program would take the disks for full. A process that says nothing for T serves no more; one that was never started
    has no address."""
    reported = {target.target_id for node in status.nodes for target in node.targets}
    serving = {
        member.target_id for chain in status.chains for member in chain.members if member.state == manager_pb2.SERVING
    }
    started = [t for t in routing.targets if t in serving and routing.address_of(t)]
    if any(target not in reported for target in started):
        raise Unavailable("the manager has not heard yet of all disks that serve: try again")


def space(status: manager_pb2.GetStatusReply) -> pb.StatFsReply:
    """Each disk counts once, however many targets and processes share it (on a laptop all of them do). Blocks that
    targets can use again in their own files count as free."""
    reply = pb.StatFsReply()
    disks: dict[str, tuple[int, int]] = {}
    for node in status.nodes:
        for target in node.targets:
            reply.used_bytes += target.used_bytes
            reply.free_bytes += target.reusable_bytes
            disk = target.disk or f"of node {node.node.node_id}"
            capacity, free = disks.get(disk, (0, 0))
            own = target.free_bytes - min(target.reusable_bytes, target.free_bytes)
            disks[disk] = max(capacity, target.capacity_bytes), max(free, own)
    reply.capacity_bytes = sum(capacity for capacity, _ in disks.values())
    reply.free_bytes += sum(free for _, free in disks.values())
    reply.replicas = _replicas(status)
    return reply


def _replicas(status: manager_pb2.GetStatusReply) -> int:
    """What the tables say, since a chain that moves has one member more for a while. Managers of earlier releases move
    nothing, and do not say it."""
    said = max((table.replicas for table in status.tables), default=0)
    return said or max((len(chain.members) for chain in status.chains), default=0)
