"""Space of the whole cluster, as the storage processes have last reported it to the manager."""

from threefs.wire import manager_pb2
from threefs.wire import meta_pb2 as pb
from threefs_meta import keys
from threefs_meta.context import Context
from threefs_meta.counters import read_counter
from threefs_meta.mutations import look
from threefs_meta.namespace import Namespace


async def statfs(context: Context, request: pb.StatFsRequest) -> pb.StatFsReply:
    status = await context.status()
    reply = space(status)

    async def work(names: Namespace) -> int:
        # Reserved and not used numbers are counted too.
        return await read_counter(names.tx, keys.NEXT_INODE) - await read_counter(names.tx, keys.REMOVED_INODES)

    reply.inodes = max(1, await look(context, work))
    return reply


def space(status: manager_pb2.GetStatusReply) -> pb.StatFsReply:
    """Each disk counts once, however many targets and processes share it (on a laptop all of them do)."""
    reply = pb.StatFsReply()
    disks: dict[str, tuple[int, int]] = {}
    for node in status.nodes:
        for target in node.targets:
            reply.used_bytes += target.used_bytes
            disk = target.disk or f"of node {node.node.node_id}"
            capacity, free = disks.get(disk, (0, 0))
            disks[disk] = max(capacity, target.capacity_bytes), max(free, target.free_bytes)
    reply.capacity_bytes = sum(capacity for capacity, _ in disks.values())
    reply.free_bytes = sum(free for _, free in disks.values())
    reply.replicas = max((len(chain.members) for chain in status.chains), default=0)
    return reply
