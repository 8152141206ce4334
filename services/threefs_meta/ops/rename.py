"""Rename: move an entry to another place in the tree, atomically. It replaces the entry there, or the two change
places."""

from collections.abc import Awaitable, Callable

from threefs.errors import AlreadyExists, Corrupt, InvalidArgument, IsADirectory, NotADirectory, TooLarge
from threefs.ids import ROOT
from threefs.kv.engine_api import MAX_TRANSACTION_KEYS
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta.access.credentials import Credentials, actor_of
from threefs_meta.access.entry_permissions import check_movable, check_new_parent, check_removable, writable_parent
from threefs_meta.context import Context
from threefs_meta.file.inode_factory import InodeSpec, check_new_name, check_vacant, new_inode
from threefs_meta.ops.remove import unlink_directory
from threefs_meta.quota.attribution import inherit_quota
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import Resolution, find, not_found, resolve
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import RETRY_ALONE, NeedsChunkIo, run_mutation

#: Above the new place of a directory. All are read, and a transaction cannot depend on more.
MAX_LEVELS = MAX_TRANSACTION_KEYS


async def rename(context: Context, request: pb.RenameRequest) -> pb.InodeReply:
    if request.exchange and (request.no_replace or request.whiteout or request.always_moves):
        raise InvalidArgument(
            "a rename cannot both exchange two entries and keep the other one, leave a whiteout, or remove a name"
        )
    work = rename_transaction(context, request, actor_of(request))
    return await run_mutation(context, methods.RENAME, request.mutation, work, request.source, request.destination)


def rename_transaction(
    context: Context, request: pb.RenameRequest, actor: Credentials, *, in_batch: bool = False
) -> Callable[[Namespace], Awaitable[pb.InodeReply | NeedsChunkIo]]:
    """The transaction of one rename. In a batch, renames of directories are left to calls of their own."""

    async def work(ns: Namespace) -> pb.InodeReply | NeedsChunkIo:
        source, inode = await find(ns, request.source, actor, follow=False)
        if in_batch and (inode.type == pb.DIRECTORY or request.exchange or request.whiteout):
            return RETRY_ALONE
        target = await resolve(ns, request.destination, actor, follow=False)
        check_new_name(source, request.source)
        check_new_name(target, request.destination)
        check_vacant(target, request.destination)
        if inode.type == pb.DIRECTORY:
            await _check_no_loop(ns, inode.inode, source.parent, target.parent, request)
        if target.entry is not None:
            if request.no_replace:
                raise AlreadyExists(f"{paths.shown_place(request.destination)} exists already")
            if target.entry.inode == inode.inode:
                return await _rename_to_itself(context, ns, source, target, inode, actor, request)
        elif request.exchange:
            raise not_found(request.destination)
        await check_movable(ns, source, inode, target, actor, request.source)
        old = await _check_target(ns, target, inode, actor, request)
        assert old is not None or not request.exchange, "two entries that change places exist"
        now_ns = context.clock.wall_ns()
        replaced = None
        if old is not None and request.exchange:
            await _check_exchange(ns, source, old, target, actor, request)
        elif old is not None:
            await _remove(ns, old, paths.shown_place(request.destination), now_ns)
            replaced = old if old.type == pb.DIRECTORY else None
            old.ClearField("delegation")
        ns.clear_entry(source.parent, source.name, inode, now_ns)
        if old is not None:
            ns.clear_entry(target.parent, target.name, old, now_ns)
            if request.exchange:
                await inherit_quota(ns, old, await ns.directory(source.parent))
                await _put(ns, old, source, now_ns)
        await inherit_quota(ns, inode, await ns.directory(target.parent))
        await _put(ns, inode, target, now_ns)
        if request.whiteout:
            await _leave_whiteout(context, ns, source, actor)
        return pb.InodeReply(inode=await ns.with_times(inode), replaced=replaced)

    return work


async def _rename_to_itself(
    context: Context,
    ns: Namespace,
    source: Resolution,
    target: Resolution,
    inode: pb.Inode,
    actor: Credentials,
    request: pb.RenameRequest,
) -> pb.InodeReply:
    """Both are the same entry, which stays, or two names of one file: POSIX asks for no change, and users of `mv` for
    one name."""
    is_same_entry = (source.parent, source.name) == (target.parent, target.name)
    if request.always_moves and not is_same_entry and inode.nlink > 1:  # a damaged store may count one
        await check_removable(ns, source, inode, actor, request.source)
        now_ns = context.clock.wall_ns()
        await inherit_quota(ns, inode, await ns.directory(target.parent))
        ns.unlink(inode, now_ns)
        ns.clear_entry(source.parent, source.name, inode, now_ns)
    return pb.InodeReply(inode=await ns.with_times(inode))


async def _put(ns: Namespace, inode: pb.Inode, resolved: Resolution, now_ns: int) -> None:
    assert resolved.name, "an entry has a name"
    await ns.put_entry(resolved.parent, resolved.name, inode, now_ns)
    if inode.type == pb.DIRECTORY:  # the inode of a file does not store its names
        inode.parent, inode.name = resolved.parent, resolved.name
    inode.moves += 1
    inode.ctime_ns = now_ns  # a check of link counts sees by this that a name has moved
    ns.put_inode(inode)


async def _leave_whiteout(context: Context, ns: Namespace, resolved: Resolution, maker: Credentials) -> None:
    """Overlay file systems take a whiteout for a name that is removed. It opens no device, so every user may make
    one."""
    parent = await ns.directory(resolved.parent)
    await ns.add(
        resolved.parent, resolved.name, await new_inode(context, ns, parent, InodeSpec(pb.CHARACTER_DEVICE, maker, 0))
    )


async def _check_no_loop(ns: Namespace, moved: int, old: int, new: int, request: pb.RenameRequest) -> None:
    """Raise InvalidArgument if directory `moved`, with parent `old`, is the directory `new` or lies above it.

    Every directory above the new place is read, so another rename that moves one of them is a conflict. Raises Corrupt
    if the directories of a damaged store do not lead to the root.
    """
    at = new
    above: set[int] = set()
    while at != ROOT:
        if at == moved:
            shown = paths.shown_place(request.source)
            raise InvalidArgument(f"{shown} cannot be moved below itself, to {paths.shown_place(request.destination)}")
        if at in above:
            raise Corrupt(f"directory inode {at} lies below itself; `threefs fsck --repair` moves it to /lost+found")
        if old == new:
            return  # a rename within one directory moves nothing below anything else
        if len(above) == MAX_LEVELS:
            raise TooLarge(
                f"{paths.shown_place(request.destination)} lies below more than {MAX_LEVELS} directories: move "
                "directories that are less deep first"
            )
        above.add(at)
        at = (await ns.directory(at)).parent
    assert moved not in above, "a directory never comes to lie below itself (I10)"


async def _check_target(
    ns: Namespace, target: Resolution, inode: pb.Inode, actor: Credentials, request: pb.RenameRequest
) -> pb.Inode | None:
    """The inode at the destination, if it may be replaced or exchanged."""
    await writable_parent(ns, target, actor)  # the removal of the directory is a conflict
    if target.entry is None:
        return None
    old = await ns.require_inode(target.entry.inode)
    await check_removable(ns, target, old, actor, request.destination)
    if request.exchange:
        return old
    if inode.type == pb.DIRECTORY and old.type != pb.DIRECTORY:
        raise NotADirectory(f"{paths.shown_place(request.destination)} is not a directory")
    if inode.type != pb.DIRECTORY and old.type == pb.DIRECTORY:
        raise IsADirectory(f"{paths.shown_place(request.destination)} is a directory")
    return old


async def _check_exchange(
    ns: Namespace,
    source: Resolution,
    old: pb.Inode,
    target: Resolution,
    actor: Credentials,
    request: pb.RenameRequest,
) -> None:
    """The inode at the destination moves as well, to the source."""
    if old.type == pb.DIRECTORY:
        await _check_no_loop(ns, old.inode, target.parent, source.parent, request)
        check_new_parent(old, target.parent, source.parent, actor, request.destination)


async def _remove(ns: Namespace, old: pb.Inode, shown: str, now_ns: int) -> None:
    if old.type == pb.DIRECTORY:
        await unlink_directory(ns, old, shown, False, now_ns)
    else:
        ns.unlink(old, now_ns)
