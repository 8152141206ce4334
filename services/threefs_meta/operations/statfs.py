"""Space of the whole cluster, as the storage processes have last reported it to the manager."""

from threefs.wire import manager_pb2
from threefs.wire import meta_pb2 as pb
from threefs_meta import keys
from threefs_meta.context import Context
from threefs_meta.mutations import look
from threefs_meta.namespace import Namespace, read_counter


async def statfs(context: Context, request: pb.StatFsRequest) -> pb.StatFsReply:
    status = await context.status()
    reply = space(status)

    async def work(names: Namespace) -> int:
        # Reserved and not used numbers are counted too.
        return await read_counter(names.tx, keys.NEXT_INODE) - await read_counter(names.tx, keys.REMOVED_INODES)

    reply.inodes = max(1, await look(context, work))
    return reply


def space(status: manager_pb2.GetStatusReply) -> pb.StatFsReply:
    """A process has one disk, which all its targets share."""
    reply = pb.StatFsReply()
    for node in status.nodes:
        if node.targets:
            capacity = max(target.capacity_bytes for target in node.targets)
            used = sum(target.used_bytes for target in node.targets)
            reply.capacity_bytes += capacity
            reply.used_bytes += used
            reply.free_bytes += max(0, capacity - used)
    reply.replicas = max((len(chain.members) for chain in status.chains), default=0)
    return reply
