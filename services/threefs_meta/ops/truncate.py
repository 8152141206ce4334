"""Make a file exactly so long. How that stays right across crashes and writers is told in `cutting`."""

from threefs.errors import SessionLost
from threefs.kv import records
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import WriteSession
from threefs_meta.access import permissions
from threefs_meta.access.credentials import actor_of
from threefs_meta.access.permissions import WRITE
from threefs_meta.context import Context
from threefs_meta.file.truncation import Truncation
from threefs_meta.lease import leases
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import find
from threefs_meta.store import keys
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import NeedsChunkIo, run_mutation
from threefs_meta.validation import check_session


async def truncate(context: Context, request: pb.TruncateRequest) -> pb.InodeReply:
    check_session(request.session)
    actor = actor_of(request)
    truncation = Truncation(context, request.length)

    async def work(ns: Namespace) -> pb.InodeReply | NeedsChunkIo:
        _, inode = await find(ns, request.place, actor, follow=True)
        if request.session:  # its locks may be somebody else's by now, so permission is not enough
            await _check_session(ns, inode.inode, request)
        else:
            permissions.check(inode, actor, WRITE, paths.shown_place(request.place))
        first = truncation.apply(ns, inode, await ns.chains_used(inode))
        if first is not None:
            return first
        permissions.drop_privileges_on_write(inode, actor)
        ns.put_inode(inode)
        return pb.InodeReply(inode=inode)

    return await run_mutation(context, methods.TRUNCATE, request.mutation, work)


async def _check_session(ns: Namespace, inode: int, request: pb.TruncateRequest) -> None:
    """Raises SessionLost, also if only the client's lease has ended yet."""
    key = keys.session(inode, request.session)
    value = await ns.tx.get(key)
    lease = 0 if value is None else records.decode(value, WriteSession, key).lease
    if not lease or lease != await leases.current(ns.tx, request.mutation.client):
        raise SessionLost(f"{paths.shown_place(request.place)} is not open under this write session; open it again")
