"""Set for how long removed files of a directory are kept, and list a page of one owner's trash."""

from collections.abc import Sequence

from threefs.errors import Corrupt, InvalidArgument, NotADirectory
from threefs.kv.engine_api import Pair
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import permissions
from threefs_meta.access.credentials import actor_of
from threefs_meta.access.permissions import READ
from threefs_meta.context import Context
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import find
from threefs_meta.store import entry_codec, keys
from threefs_meta.store.entry_codec import Entry
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import NeedsChunkIo, run_mutation, run_readonly
from threefs_meta.trash import retention

MAX_TRASH_S = 10 * 366 * 24 * 3600
MAX_ITEMS = 512  # of a page


async def set_trash(context: Context, request: pb.SetTrashRequest) -> pb.InodeReply:
    if request.trash_s > MAX_TRASH_S:
        raise InvalidArgument(f"the trash keeps files for at most {MAX_TRASH_S} seconds, not {request.trash_s}")
    actor = actor_of(request)

    async def work(ns: Namespace) -> pb.InodeReply | NeedsChunkIo:
        _, inode = await find(ns, request.place, actor, follow=True)
        shown = paths.shown_place(request.place)
        if inode.type != pb.DIRECTORY:
            raise NotADirectory(f"{shown} is not a directory")
        if inode.trash:
            raise InvalidArgument(f"{shown} is a directory of the trash, and has no trash time")
        permissions.check_owner(inode, actor, shown)
        if request.HasField("trash_s"):
            if request.trash_s:
                await retention.enable(context, ns)
            inode.trash_s = request.trash_s
        else:
            inode.ClearField("trash_s")
        inode.ctime_ns = context.clock.wall_ns()
        ns.put_inode(inode)
        return pb.InodeReply(inode=await ns.with_times(inode))

    return await run_mutation(context, methods.SET_TRASH, request.mutation, work)


async def list_trash(context: Context, request: pb.ListTrashRequest) -> pb.ListTrashReply:
    if len(request.after) > paths.MAX_NAME_BYTES:
        raise InvalidArgument(
            f"a name to go on from has at most {paths.MAX_NAME_BYTES} bytes, not {len(request.after)}"
        )
    limit = min(request.limit or MAX_ITEMS, MAX_ITEMS)
    actor = actor_of(request)

    async def work(ns: Namespace) -> pb.ListTrashReply:
        _, directory = await find(ns, request.place, actor, follow=True)
        shown = paths.shown_place(request.place)
        if not directory.trash:
            raise InvalidArgument(f"{shown} is not a directory of the trash; `threefs trash list` shows what is in it")
        permissions.check(directory, actor, READ, shown)
        found = await _rows(ns, directory.inode, request, limit + 1)
        reply = pb.ListTrashReply(more=len(found) > limit)
        for key, value in found[:limit]:
            reply.next = name = keys.entry_of(key)[1]
            try:
                item = await _item(context, ns, directory.inode, name, entry_codec.decode(value, key))
            except Corrupt as error:  # the others can be listed, and restored
                context.damaged.pass_over(key, error, "an entry of the trash cannot be listed")
                continue
            if item is not None:
                reply.items.append(item)
        return reply

    return await run_readonly(context, work)


async def _rows(ns: Namespace, directory: int, request: pb.ListTrashRequest, limit: int) -> Sequence[Pair]:
    """(key, value) of entries, which may be damaged."""
    if not request.only:
        return await ns.tx.get_range(*keys.entries(directory, request.after), limit=limit)
    key = keys.entry(directory, request.only)
    value = await ns.tx.get(key)
    return [] if value is None else [(key, value)]


async def _item(context: Context, ns: Namespace, directory: int, name: bytes, entry: Entry) -> pb.TrashItem | None:
    """None: this entry came into the trash by other means, and stays. Raises Corrupt."""
    clock = context.logical_clock
    record = await retention.record_of(ns, directory, name, entry.inode)
    due = retention.due_of(name)
    if record is None or due is None:
        return None
    inode = await ns.require_inode(entry.inode)
    return pb.TrashItem(
        name=name,
        path=record.path,
        removed_ns=record.removed_ns,
        uid=record.uid,
        left_s=max(0, int((due - clock.tick) * clock.tick_s)),
        inode=await ns.with_times(inode),
    )
