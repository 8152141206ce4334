"""Close files, one or many in one transaction: settle their lengths and end their write sessions."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from threefs.errors import SessionLost
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import privileges
from threefs_meta.access.credentials import Credentials, actor_of
from threefs_meta.context import Context
from threefs_meta.file.length import LengthReport, LengthUpdate, finish_appends, widen_chains_used
from threefs_meta.lease import write_sessions
from threefs_meta.store import keys
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import NeedsChunkIo, run_mutation


class _Close(NamedTuple):
    request: pb.CloseRequest
    length_update: LengthUpdate  # keeps what the chains said between two attempts of the transaction


async def close(context: Context, request: pb.CloseRequest) -> pb.InodeReply:
    return await run_mutation(
        context, methods.CLOSE, request.mutation, close_transaction(context, request, actor_of(request))
    )


def close_transaction(
    context: Context, request: pb.CloseRequest, actor: Credentials
) -> Callable[[Namespace], Awaitable[pb.InodeReply | NeedsChunkIo]]:
    """The transaction of one close. Raises InvalidArgument."""
    closes = [_checked(context, request)]

    async def work(ns: Namespace) -> pb.InodeReply | NeedsChunkIo:
        replies, obstacle = await _close_all(context, ns, closes, actor)
        if isinstance(obstacle, SessionLost):
            raise obstacle
        return replies[0] if obstacle is None else obstacle

    return work


async def close_batch(
    context: Context, ns: Namespace, requests: Iterable[pb.CloseRequest], actor: Credentials
) -> list[tuple[pb.InodeReply, bytes]]:
    """Close the first of these, as many as are different files, are open, and need no answer of the chains: see
    `create_batch` in `ops/create.py`."""
    closes: dict[int, _Close] = {}
    for request in requests:
        if request.inode in closes:
            break
        closes[request.inode] = _checked(context, request)
    replies, _ = await _close_all(context, ns, list(closes.values()), actor)
    return [(reply, b"") for reply in replies]


def _checked(context: Context, request: pb.CloseRequest) -> _Close:
    """Raises InvalidArgument."""
    write_sessions.check_id(request.session)
    return _Close(request, LengthUpdate(context, LengthReport.of(request)))


async def _close_all(
    context: Context, ns: Namespace, closes: Sequence[_Close], actor: Credentials
) -> tuple[list[pb.InodeReply], SessionLost | NeedsChunkIo | None]:
    """Close the first of these files, which are different ones: the replies, and why the next one is not closed (None:
    all are). Raises FileTooLarge."""
    inodes = await ns.inodes([close.request.inode for close in closes])
    sessions = await ns.tx.get_many([keys.session(close.request.inode, close.request.session) for close in closes])
    settled: list[tuple[pb.CloseRequest, pb.Inode]] = []
    obstacle: SessionLost | NeedsChunkIo | None = None
    for close, inode, session in zip(closes, inodes, sessions, strict=True):
        if inode is None or (close.request.session and session is None):
            obstacle = write_sessions.lost(close.request.inode)
            break
        obstacle = await _settle(ns, close, inode, actor)
        if obstacle is not None:
            break
        settled.append((close.request, inode))
    assert obstacle is not None or len(settled) == len(closes), "a file that is not closed has an obstacle"
    now_ns = context.clock.wall_ns()
    for request, inode in settled:
        if request.session:
            await write_sessions.end(ns, inode, request.session, now_ns)
    is_over = context.quotas.is_over
    return [pb.InodeReply(inode=inode, over_quota=is_over(inode)) for _, inode in settled], obstacle


async def _settle(ns: Namespace, close: _Close, inode: pb.Inode, actor: Credentials) -> NeedsChunkIo | None:
    """Apply what the writer reports, and store the inode if that changes it. Raises FileTooLarge."""
    longer = close.length_update.apply(inode)
    if isinstance(longer, NeedsChunkIo):
        return longer
    chains_used = inode.chains_used
    ended = finish_appends(inode, close.request.session)
    if close.request.session:
        widen_chains_used(inode, close.length_update.report)
    if longer:
        await privileges.drop_on_write(ns, inode, actor)
        ns.put_inode(inode)
    elif ended or inode.chains_used != chains_used:
        ns.put_inode_unseen(inode)
    return None
