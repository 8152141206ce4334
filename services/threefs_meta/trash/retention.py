"""What is removed below a directory that has a trash time is kept so long: it moves to /.trash/OWNER, by its name and a
tail that says when it is due.

The move is made in the transaction of the removal, so nothing is ever in neither place or in both. A record says where
it came from. What has been moved on or removed from there by other means leaves a record that matches nothing, and goes
when it is due. Time is counted in ticks: it stands still while no meta service runs.

A directory's own setting counts for all below it, up to the next one: so it is looked for on the way up from where
something is removed. That costs nothing as long as no directory has ever had one.
"""

import math
import re

from threefs.errors import AlreadyExists, NotADirectory
from threefs.ids import ROOT
from threefs.kv import records
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import Trashed
from threefs_meta.access.credentials import TRUSTED
from threefs_meta.context import Context
from threefs_meta.file.inode_factory import InodeSpec, new_inode
from threefs_meta.resolve import paths
from threefs_meta.store import keys
from threefs_meta.store.counters import raise_to
from threefs_meta.store.namespace import Namespace

NAME = b".trash"
_MODE, _OWNERS_MODE = 0o711, 0o700  # everybody may go through to what is theirs
_TAIL = re.compile(rb"~([0-9a-f]{1,16})-[0-9a-f]{8}$")
#: No tree of people is so deep; what is deeper has no trash.
_MAX_LEVELS = 4096


def due_of(name: bytes) -> int | None:
    """The tick in which what has this name in a trash is due; None for a name that we have not given."""
    found = _TAIL.search(name)
    return int(found[1], 16) if found else None


async def is_used(ns: Namespace) -> bool:
    """Whether any directory has ever had a trash time."""
    return await ns.tx.get(keys.TRASH_USED) is not None


async def retention_s(ns: Namespace, directory: int) -> int:
    """How long to keep what is removed from the directory; 0: not at all, as in a trash."""
    if not await is_used(ns):
        return 0
    for inode in await _ancestors(ns, directory):
        if inode.trash:
            return 0
        if inode.HasField("trash_s"):
            return inode.trash_s
    return 0


async def _ancestors(ns: Namespace, directory: int) -> list[pb.Inode]:
    """The directory and all above it up to the root; nothing, if the way does not lead there."""
    way: list[pb.Inode] = []
    at = directory
    while len(way) < _MAX_LEVELS:
        inode = await ns.inode(at)
        if inode is None:
            break
        way.append(inode)
        if at == ROOT:
            return way
        at = inode.parent
    return []


async def move_to_trash(
    context: Context, ns: Namespace, parent: int, name: bytes, inode: pb.Inode, who: int, keep_s: int
) -> None:
    """Move it to its owner's trash. The caller has checked that it may be removed, and clears the entry."""
    now_ns = context.clock.wall_ns()
    directory = await _owner_directory(context, ns, inode.uid)
    clock = context.logical_clock
    due = clock.stamp() + math.ceil(keep_s / clock.tick_s)
    tail = b"~%x-%s" % (due, context.random.token(4).hex().encode())
    kept = name[: paths.MAX_NAME_BYTES - len(tail)] + tail
    above = [each.name for each in await _ancestors(ns, parent)]
    path = b"/".join([*reversed(above), name]) if above else b""
    record = Trashed(inode=inode.inode, path=path[: paths.MAX_PATH_BYTES], removed_ns=now_ns, uid=who)
    ns.tx.set(keys.trashed(due, directory, kept), records.encode(record))
    await ns.put_entry(directory, kept, inode, now_ns)
    if inode.type == pb.DIRECTORY:
        inode.parent, inode.name = directory, kept
    inode.ctime_ns = now_ns
    inode.moves += 1
    ns.put_inode(inode)  # it goes on counting for the same quotas


def clear_record(ns: Namespace, parent: int, name: bytes) -> None:
    """Something is removed for good: if it was in a trash, nobody has to remember it."""
    due = due_of(name)
    if due is not None:
        ns.tx.clear(keys.trashed(due, parent, name))


async def record_of(ns: Namespace, parent: int, name: bytes, inode: int) -> Trashed | None:
    """Of something in a trash, unless it came there by other means."""
    due = due_of(name)
    if due is None:
        return None
    key = keys.trashed(due, parent, name)
    value = await ns.tx.get(key)
    record = None if value is None else records.decode(value, Trashed, key)
    return record if record is not None and record.inode == inode else None


async def enable(context: Context, ns: Namespace) -> int:
    """Some directory has a trash time from now on; the directory /.trash."""
    await raise_to(ns.tx, keys.TRASH_USED, 1)
    return await _find_or_make_directory(context, ns, ROOT, NAME, 0, _MODE)


async def _owner_directory(context: Context, ns: Namespace, uid: int) -> int:
    top = await _find_or_make_directory(context, ns, ROOT, NAME, 0, _MODE)
    return await _find_or_make_directory(context, ns, top, b"%d" % uid, uid, _OWNERS_MODE)


async def _find_or_make_directory(
    context: Context, ns: Namespace, parent: int, name: bytes, uid: int, mode: int
) -> int:
    """Found or made. Its removal is a conflict."""
    entry = await ns.entry(parent, name)
    if entry is None:
        inode = await new_inode(context, pb.Inode(), InodeSpec(pb.DIRECTORY, TRUSTED, mode))
        inode.uid, inode.parent, inode.name, inode.trash = uid, parent, name, True
        await ns.add(parent, name, inode)
        return inode.inode
    if entry.type != pb.DIRECTORY:
        raise NotADirectory(f"{paths.shown(name)} is where the trash has to be, and is not a directory")
    if not (await ns.directory(entry.inode)).trash:
        raise AlreadyExists(f"the directory {paths.shown(name)} is where the trash has to be: move it away")
    return entry.inode
