"""Remove names, one or many in one transaction. An inode goes with its last name, unless the trash keeps it.

A recursive removal takes a directory out of the tree in one transaction, however much lies below it; the garbage
collector frees the rest. It changes the inode of the directory, which every transaction that adds an entry has read, so
no entry can be added afterwards.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from threefs.errors import InvalidArgument, IsADirectory, NotADirectory, NotEmpty
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta.access.credentials import Credentials, actor_of
from threefs_meta.access.entry_permissions import check_removable
from threefs_meta.context import Context
from threefs_meta.quota.attribution import end_quota_of_removed
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import Resolution, find, resolve
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import NeedsChunkIo, run_mutation
from threefs_meta.trash import retention


class _Removal(NamedTuple):
    request: pb.RemoveRequest
    resolved: Resolution
    inode: pb.Inode


async def remove(context: Context, request: pb.RemoveRequest) -> pb.RemoveReply:
    work = remove_transaction(context, request, actor_of(request))
    return await run_mutation(context, methods.REMOVE, request.mutation, work)


def remove_transaction(
    context: Context, request: pb.RemoveRequest, actor: Credentials
) -> Callable[[Namespace], Awaitable[pb.RemoveReply | NeedsChunkIo]]:
    """The transaction of one removal."""

    async def work(ns: Namespace) -> pb.RemoveReply | NeedsChunkIo:
        resolved, inode = await find(ns, request.place, actor, follow=False)
        if not resolved.name:
            raise InvalidArgument(f"{paths.shown_place(request.place)} cannot be removed: it does not name an entry")
        removal = _Removal(request, resolved, inode)
        if inode.type == pb.DIRECTORY:
            return await _remove_directory(context, ns, removal, actor)
        return await _remove_files(context, ns, [removal], actor)

    return work


async def remove_batch(
    context: Context, ns: Namespace, requests: Iterable[pb.RemoveRequest], actor: Credentials
) -> list[tuple[pb.RemoveReply, bytes]]:
    """Remove the first of these names, as many as are of different files: see `create_batch` in `ops/create.py`.

    A symbolic link ends them, because later names may be reached through it until it is removed.
    """
    found: dict[int, tuple[pb.RemoveRequest, Resolution]] = {}  # by inode
    for request in requests:
        resolved = await resolve(ns, request.place, actor, follow=False)
        entry = resolved.entry
        if entry is None or not resolved.name or entry.type in (pb.DIRECTORY, pb.SYMLINK) or entry.inode in found:
            break
        found[entry.inode] = request, resolved
    inodes = await ns.require_inodes(list(found))
    removals = [_Removal(*pair, inode) for pair, inode in zip(found.values(), inodes, strict=True)]
    if not removals:
        return []
    return [(await _remove_files(context, ns, removals, actor), b"")] * len(removals)


async def _remove_files(
    context: Context, ns: Namespace, removals: Sequence[_Removal], actor: Credentials
) -> pb.RemoveReply:
    """Remove names of different inodes, none of them a directory. The reply is that of each."""
    for request, resolved, inode in removals:
        await check_removable(ns, resolved, inode, actor, request.place)
        if request.kind == pb.ONLY_DIRECTORY:
            raise NotADirectory(f"{paths.shown_place(request.place)} is not a directory")
    assert removals, "the reply has the time of the removals"
    now_ns = context.clock.wall_ns()
    trash_is_used = await retention.is_used(ns)
    for _, resolved, inode in removals:
        if not trash_is_used or not await _move_to_trash(context, ns, resolved, inode, actor):
            ns.unlink(inode, now_ns)
    for _, resolved, inode in removals:
        ns.clear_entry(resolved.parent, resolved.name, inode, now_ns)
        if trash_is_used:
            retention.clear_record(ns, resolved.parent, resolved.name)
    return pb.RemoveReply(changed_ns=now_ns)


async def _remove_directory(context: Context, ns: Namespace, removal: _Removal, actor: Credentials) -> pb.RemoveReply:
    request, resolved, inode = removal
    assert resolved.name, "what is removed is the name of a directory"
    await check_removable(ns, resolved, inode, actor, request.place)
    shown = paths.shown_place(request.place)
    if request.kind == pb.NOT_DIRECTORY:
        raise IsADirectory(f"{shown} is a directory")
    now_ns = context.clock.wall_ns()
    # To take out a tree takes permissions everywhere in it, so users remove its entries one by one.
    recursive = request.recursive and actor.is_super
    # An empty directory has nothing that the trash could keep.
    keeps = recursive and not inode.trash and not await ns.is_empty(inode.inode)
    if not keeps or not await _move_to_trash(context, ns, resolved, inode, actor):
        await unlink_directory(ns, inode, shown, recursive, now_ns)
    ns.clear_entry(resolved.parent, resolved.name, inode, now_ns)
    retention.clear_record(ns, resolved.parent, resolved.name)
    inode.ClearField("delegation")  # no business of the caller
    return pb.RemoveReply(directory=inode, changed_ns=now_ns)


async def _move_to_trash(
    context: Context, ns: Namespace, resolved: Resolution, inode: pb.Inode, actor: Credentials
) -> bool:
    """False if the directory has no trash time."""
    keep_s = await retention.retention_s(ns, resolved.parent)
    if keep_s:
        await retention.move_to_trash(context, ns, resolved.parent, resolved.name, inode, actor.uid, keep_s)
    return bool(keep_s)


async def unlink_directory(ns: Namespace, inode: pb.Inode, shown: str, recursive: bool, now_ns: int) -> None:
    """Remove the inode: an empty directory at once, another one through the queue. Raises NotEmpty."""
    empty = await ns.is_empty(inode.inode)
    if empty and not inode.xattr_bytes:
        await end_quota_of_removed(ns, inode)
        ns.clear_inode_at_once(inode)
    elif empty or recursive:
        ns.unlink(inode, now_ns)
    else:
        raise NotEmpty(f"the directory {shown} is not empty")
