"""End a write session, and settle the length of the file."""

from collections.abc import Awaitable, Callable, Iterable

from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import permissions
from threefs_meta.access.credentials import Credentials, actor_of
from threefs_meta.context import Context
from threefs_meta.file.length import LengthReport, LengthUpdate, finish_appends, widen_chains_used
from threefs_meta.lease import write_sessions
from threefs_meta.store import keys
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import NeedsChunkIo, run_mutation


async def close(context: Context, request: pb.CloseRequest) -> pb.InodeReply:
    return await run_mutation(
        context, methods.CLOSE, request.mutation, close_transaction(context, request, actor_of(request))
    )


def close_transaction(
    context: Context, request: pb.CloseRequest, actor: Credentials
) -> Callable[[Namespace], Awaitable[pb.InodeReply | NeedsChunkIo]]:
    """The transaction. Raises InvalidArgument."""
    length_update = _length_update(context, request)

    async def work(ns: Namespace) -> pb.InodeReply | NeedsChunkIo:
        inode = await ns.inode(request.inode)
        if request.session or inode is None:
            inode = await write_sessions.require(ns, inode, request.session, request.inode)
        put = _apply_report(request, length_update, inode, actor, ns)
        if isinstance(put, NeedsChunkIo):
            return put
        if put is not None:
            put(inode)
        if request.session:
            await write_sessions.end(ns, inode, request.session, context.clock.wall_ns())
        return pb.InodeReply(inode=inode, over_quota=context.quotas.is_over(inode))

    return work


def _length_update(context: Context, request: pb.CloseRequest) -> LengthUpdate:
    """Raises InvalidArgument."""
    write_sessions.check_id(request.session)
    report = LengthReport(
        request.length_hint, request.truncate_version, request.exact, request.written, request.attempted_end
    )
    return LengthUpdate(context, report)


def _apply_report(
    request: pb.CloseRequest, length_update: LengthUpdate, inode: pb.Inode, actor: Credentials, ns: Namespace
) -> Callable[[pb.Inode], bytes] | NeedsChunkIo | None:
    """Change the record; how it is to be stored, if it is. Raises FileTooLarge."""
    changed = length_update.apply(inode)
    if isinstance(changed, NeedsChunkIo):
        return changed
    before = inode.chains_used
    ended = finish_appends(inode, request.session)
    if request.session:
        widen_chains_used(inode, length_update.report)
    if changed:
        permissions.drop_privileges_on_write(inode, actor)
        return ns.put_inode
    return ns.put_inode_unseen if ended or inode.chains_used != before else None


async def close_batch(
    context: Context, ns: Namespace, requests: Iterable[pb.CloseRequest], actor: Credentials
) -> list[tuple[pb.InodeReply, bytes]]:
    """Close the first of these, as many as are different files and have nothing to ask of chunks: see
    `create_files` in `batch/create.py`."""
    closed = {}
    for request in requests:
        if request.inode in closed:
            break
        closed[request.inode] = request, _length_update(context, request)
    inodes = await ns.inodes(list(closed))
    sessions = await ns.tx.get_many([keys.session(one.inode, one.session) for one, _ in closed.values()])
    works = []
    for inode, session, (request, length_update) in zip(inodes, sessions, closed.values(), strict=True):
        if inode is None or session is None:
            break
        put = _apply_report(request, length_update, inode, actor, ns)
        if isinstance(put, NeedsChunkIo):
            break
        works.append((request, inode, put))
    for _, inode, put in works:
        if put is not None:
            put(inode)
    now_ns = context.clock.wall_ns()
    for request, inode, _ in works:
        await write_sessions.end(ns, inode, request.session, now_ns)
    is_over = context.quotas.is_over
    return [(pb.InodeReply(inode=inode, over_quota=is_over(inode)), b"") for _, inode, _ in works]
