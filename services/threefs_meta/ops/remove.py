"""Remove a name; with it the file or directory, if that was its last one and it is not kept in the trash.

A recursive removal takes the directory out of the tree in one transaction, however much lies below; the collector frees
what was in it. Whoever is about to make an entry in that directory has read its inode, which changes here.
"""

from collections.abc import Awaitable, Callable, Iterable

from threefs.errors import InvalidArgument, IsADirectory, NotADirectory, NotEmpty
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta.access.credentials import Credentials, actor_of
from threefs_meta.access.entry_permissions import check_removable
from threefs_meta.context import Context
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import Resolution, find, resolve
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import NeedsChunkIo, run_mutation
from threefs_meta.trash import retention


async def remove(context: Context, request: pb.RemoveRequest) -> pb.RemoveReply:
    work = remove_transaction(context, request, actor_of(request))
    return await run_mutation(context, methods.REMOVE, request.mutation, work)


def remove_transaction(
    context: Context, request: pb.RemoveRequest, actor: Credentials
) -> Callable[[Namespace], Awaitable[pb.RemoveReply | NeedsChunkIo]]:
    """The transaction."""

    async def work(ns: Namespace) -> pb.RemoveReply | NeedsChunkIo:
        resolved, inode = await find(ns, request.place, actor, follow=False)
        if not resolved.name:
            raise InvalidArgument(f"{paths.shown_place(request.place)} cannot be removed: it does not name an entry")
        await check_removable(ns, resolved, inode, actor, request.place)
        now_ns = context.clock.wall_ns()
        if inode.type == pb.DIRECTORY:
            shown = paths.shown_place(request.place)
            if request.kind == pb.NOT_DIRECTORY:
                raise IsADirectory(f"{shown} is a directory")
            # Taking out a tree would need permissions everywhere in it: users take it out piece by piece.
            recursive = request.recursive and actor.is_super
            if not await _trash_if_kept(context, ns, resolved, inode, actor, recursive=recursive):
                await remove_directory(ns, inode, shown, recursive, now_ns)
        elif request.kind == pb.ONLY_DIRECTORY:
            raise NotADirectory(f"{paths.shown_place(request.place)} is not a directory")
        elif not await _trash_if_kept(context, ns, resolved, inode, actor):
            ns.unlink(inode, now_ns)
        ns.clear_entry(resolved.parent, resolved.name, inode, now_ns)
        retention.clear_record(ns, resolved.parent, resolved.name)
        inode.ClearField("delegation")
        return pb.RemoveReply(directory=inode if inode.type == pb.DIRECTORY else None, changed_ns=now_ns)

    return work


async def remove_batch(
    context: Context, ns: Namespace, requests: Iterable[pb.RemoveRequest], actor: Credentials
) -> list[tuple[pb.RemoveReply, bytes]]:
    """Remove what the first of these name, as many as are files, each under one name: see
    `create_files` in `batch/create.py`."""
    resolutions: dict[
        int, tuple[Resolution, pb.Place]
    ] = {}  # by inode: a second name of one counts what is left after the first
    if await retention.is_used(ns):
        return []
    for request in requests:
        resolved = await resolve(ns, request.place, actor, follow=False)
        entry = resolved.entry
        if entry is None or not resolved.name or entry.type == pb.DIRECTORY or request.kind == pb.ONLY_DIRECTORY:
            break
        if entry.inode in resolutions:
            break
        resolutions[entry.inode] = resolved, request.place
    inodes = await ns.require_inodes(list(resolutions))
    for (resolved, place), inode in zip(resolutions.values(), inodes, strict=True):
        await check_removable(ns, resolved, inode, actor, place)
    now_ns = context.clock.wall_ns()
    for inode in inodes:
        ns.unlink(inode, now_ns)
    for (resolved, _), inode in zip(resolutions.values(), inodes, strict=True):
        ns.clear_entry(resolved.parent, resolved.name, inode, now_ns)
    reply = pb.RemoveReply(changed_ns=now_ns)
    return [(reply, b"")] * len(inodes)


async def _trash_if_kept(
    context: Context,
    ns: Namespace,
    resolved: Resolution,
    inode: pb.Inode,
    actor: Credentials,
    *,
    recursive: bool = False,
) -> bool:
    """Put it into the trash, if there is one for it. An empty directory has nothing to lose."""
    if inode.type == pb.DIRECTORY and (not recursive or inode.trash or await ns.is_empty(inode.inode)):
        return False
    keep_s = await retention.retention_s(ns, resolved.parent)
    if keep_s:
        await retention.move_to_trash(context, ns, resolved.parent, resolved.name, inode, actor.uid, keep_s)
    return bool(keep_s)


async def remove_directory(ns: Namespace, inode: pb.Inode, shown: str, recursive: bool, now_ns: int) -> None:
    """Take away the inode (an empty one at once, others through the queue). Raises NotEmpty."""
    empty = await ns.is_empty(inode.inode)
    if empty and not inode.xattr_bytes:
        ns.clear_inode(inode)
    elif empty or recursive:
        ns.unlink(inode, now_ns)
    else:
        raise NotEmpty(f"the directory {shown} is not empty")
