"""Keeping removed files. A file that is removed below a directory with a trash time moves to /.trash/OWNER, under its
name and a tail that says when it is due.

The move happens in the transaction of the removal, so a file is always in exactly one place. A record says where it
came from. If the file is then moved or removed from the trash by other means, its record matches nothing, and is
cleared when it is due. Time is counted in ticks, so it stands still while no meta service runs.

The trash time of a directory holds for everything below it, up to a directory with a trash time of its own. So a
removal looks for it on the way up to the root. That costs nothing while no directory has ever had a trash time.
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
_MODE, _OWNERS_MODE = 0o711, 0o700  # users may pass through to their own trash
_TAIL = re.compile(rb"~([0-9a-f]{1,16})-[0-9a-f]{8}$")
#: No tree of people is so deep. Files that lie deeper are not kept.
_MAX_LEVELS = 4096


def due_of(name: bytes) -> int | None:
    """The tick in which an entry of the trash with this name is due; None for a name that was given by other means."""
    found = _TAIL.search(name)
    return int(found[1], 16) if found else None


async def is_used(ns: Namespace) -> bool:
    """Whether any directory has ever had a trash time."""
    return await ns.tx.get(keys.TRASH_USED) is not None


async def retention_s(ns: Namespace, directory: int) -> int:
    """How long to keep files that are removed from the directory; 0 means not at all, for example in the trash."""
    if not await is_used(ns):
        return 0
    above = await _ancestors(ns, directory)
    if any(inode.trash for inode in above):  # a tree in the trash may have brought a trash time of its own
        return 0
    return next((inode.trash_s for inode in above if inode.HasField("trash_s")), 0)


async def _ancestors(ns: Namespace, directory: int) -> list[pb.Inode]:
    """The directory and all above it up to the root; empty if it is not below the root."""
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
    """Move an inode to its owner's trash. The caller has checked that it may be removed, and clears its entry."""
    now_ns = context.clock.wall_ns()
    directory = await _owner_directory(context, ns, inode.uid)
    clock = context.logical_clock
    due = clock.stamp() + math.ceil(keep_s / clock.tick_s)
    tail = b"~%x-%s" % (due, context.random.token(4).hex().encode())
    kept = name[: paths.MAX_NAME_BYTES - len(tail)] + tail
    assert due_of(kept) == due > clock.tick, "the name in the trash says when it is due"
    assert len(kept) <= paths.MAX_NAME_BYTES, "a name in the trash can be looked up"
    above = [each.name for each in await _ancestors(ns, parent)]
    path = b"/".join([*reversed(above), name]) if above else b""
    record = Trashed(inode=inode.inode, path=path[: paths.MAX_PATH_BYTES], removed_ns=now_ns, uid=who)
    ns.tx.set(keys.trashed(due, directory, kept), records.encode(record))
    await ns.put_entry(directory, kept, inode, now_ns)
    if inode.type == pb.DIRECTORY:
        inode.parent, inode.name = directory, kept
    inode.ctime_ns = now_ns
    inode.moves += 1
    ns.put_inode(inode)  # it counts for the same quotas as before


def clear_record(ns: Namespace, parent: int, name: bytes) -> None:
    """Clear the record of an entry that is removed for good, if it was in the trash."""
    due = due_of(name)
    if due is not None:
        ns.tx.clear(keys.trashed(due, parent, name))


async def record_of(ns: Namespace, parent: int, name: bytes, inode: int) -> Trashed | None:
    """The record of an entry of the trash, unless the entry came there by other means."""
    due = due_of(name)
    if due is None:
        return None
    key = keys.trashed(due, parent, name)
    value = await ns.tx.get(key)
    record = None if value is None else records.decode(value, Trashed, key)
    return record if record is not None and record.inode == inode else None


async def enable(context: Context, ns: Namespace) -> int:
    """Note that some directory has a trash time from now on. Returns the directory /.trash."""
    await raise_to(ns.tx, keys.TRASH_USED, 1)
    return await _find_or_make_directory(context, ns, ROOT, NAME, 0, _MODE)


async def _owner_directory(context: Context, ns: Namespace, uid: int) -> int:
    top = await _find_or_make_directory(context, ns, ROOT, NAME, 0, _MODE)
    return await _find_or_make_directory(context, ns, top, b"%d" % uid, uid, _OWNERS_MODE)


async def _find_or_make_directory(
    context: Context, ns: Namespace, parent: int, name: bytes, uid: int, mode: int
) -> int:
    """The number of the directory. Its removal is a conflict."""
    entry = await ns.entry(parent, name)
    if entry is None:
        await ns.directory(parent)  # for whose quotas the new one counts
        inode = await new_inode(context, ns, pb.Inode(), InodeSpec(pb.DIRECTORY, TRUSTED, mode), for_removal=True)
        inode.uid, inode.parent, inode.name, inode.trash = uid, parent, name, True
        await ns.add(parent, name, inode)
        return inode.inode
    if entry.type != pb.DIRECTORY:
        raise NotADirectory(f"{paths.shown(name)} is the place of the trash, and is not a directory: move it away")
    if not (await ns.directory(entry.inode)).trash:
        raise AlreadyExists(f"the directory {paths.shown(name)} is in the place of the trash: move it away")
    return entry.inode
