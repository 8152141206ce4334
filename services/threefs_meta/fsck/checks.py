"""Checks of a record or an inode within one transaction. Nothing is changed here.

A check of a single entry, or of a record that belongs to an inode, needs only the records that it points to. The names
of a file cannot be looked up by its number: the caller brings the places where a scan has found names, and each place
is read again here.
"""

from dataclasses import dataclass

from google.protobuf.message import Message

from threefs.errors import Corrupt
from threefs.ids import ROOT
from threefs.kv import records
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import (
    ClientLease,
    ClientLocks,
    Counter,
    CutMark,
    DirectoryTimes,
    EndedLease,
    EntryRecord,
    LockWait,
    QuotaLimits,
    ReadHold,
    Renewal,
    Replay,
    Retag,
    Trashed,
    Usage,
    UsageDelta,
    WriteSession,
    XattrRecord,
)
from threefs_meta.fsck import usage
from threefs_meta.lease import leases, write_sessions
from threefs_meta.quota.accounting import ZERO, Account, Cost, is_tree, number_of
from threefs_meta.resolve import paths
from threefs_meta.store import keys
from threefs_meta.store.counters import read_counter
from threefs_meta.store.namespace import Namespace, is_freed

#: Tables of which only this is checked: that their records can be read.
READABLE: dict[tuple[bytes, bytes], type[Message]] = {
    keys.TRASH: Trashed,
    keys.CLIENTS: ClientLease,
    keys.RENEWALS: Renewal,
    keys.ENDED: EndedLease,
    keys.WAITS: LockWait,
    keys.TRUNCATION_MARKS: CutMark,
    keys.LIMITS: QuotaLimits,
    keys.USAGE: Usage,
    keys.DELTAS: UsageDelta,
    keys.RETAGS: Retag,
    keys.REPLAYS: Replay,
    (keys.REMOVED_INODES, keys.REMOVED_INODES + b"\0"): Counter,
}
#: No tree of people is so deep. A deeper path counts as free of loops.
_MAX_LEVELS = 1 << 16


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, with everything that its repair needs."""

    kind: pb.FsckKind
    detail: str
    key: bytes = b""  # of the record that is wrong
    inode: int = 0
    parent: int = 0
    name: bytes = b""
    names: tuple[tuple[int, bytes], ...] = ()  # all names of the inode
    queued: tuple[bytes, ...] = ()  # its keys in the queue of removals
    account: Account = b""
    missing: Cost = ZERO  # what the sum of the account lacks


async def check_subject(ns: Namespace, subject: pb.FsckSubject) -> list[Problem]:
    if subject.key:
        return await check_record(ns, subject.key)
    if subject.HasField("kept"):
        return await _check_usage(ns, subject)
    if subject.loop:
        return await check_no_loop(ns, subject.inode)
    if subject.end:
        return await _check_length(ns, subject)
    return await check_inode(ns, subject)


# ---- single records ----


async def check_record(ns: Namespace, key: bytes) -> list[Problem]:
    """Check a record of any table. A record that does not exist (any more) is not wrong."""
    if key == keys.inode(ROOT) and await ns.tx.get(key) is None:
        return [Problem(pb.ROOT_MISSING, "the root directory does not exist", key, ROOT)]
    if keys.ENTRIES[0] <= key < keys.ENTRIES[1]:
        return await _check_entry(ns, key)
    if keys.INODES[0] <= key < keys.INODES[1]:
        return await _check_inode_record(ns, key)
    if keys.REMOVALS[0] <= key < keys.REMOVALS[1]:
        return await _check_removal(ns, key)
    if any(begin <= key < end for begin, end in keys.ATTACHED):
        return await _check_attached(ns, key)
    return await _check_readable(ns, key)


async def _check_entry(ns: Namespace, key: bytes) -> list[Problem]:
    value = await ns.tx.get(key)
    if value is None:
        return []
    parent, name = keys.entry_of(key)
    shown = f"entry {paths.shown(name)!r} of directory {parent}"
    try:
        entry = records.decode(value, EntryRecord, key)
    except Corrupt as error:
        return [Problem(pb.UNREADABLE_RECORD, str(error), key, parent=parent, name=name)]

    def problem(kind: pb.FsckKind, detail: str) -> Problem:
        return Problem(kind, f"{shown} {detail}", key, entry.inode, parent, name)

    directory = await read_inode(ns, parent)
    if directory is None or (isinstance(directory, pb.Inode) and directory.type != pb.DIRECTORY):
        return [problem(pb.LOST_ENTRY, "is in something that is no directory")]
    inode = await read_inode(ns, entry.inode)
    if inode is None:
        return [problem(pb.DANGLING_ENTRY, f"names inode {entry.inode}, which does not exist")]
    if isinstance(inode, Corrupt):
        return []  # reported for the inode itself
    if is_freed(inode):
        return [problem(pb.DANGLING_ENTRY, f"names inode {entry.inode}, which is being freed: its bytes are lost")]
    if inode.type != entry.type:
        return [problem(pb.WRONG_TYPE, f"has another type than inode {entry.inode}")]
    if inode.type != pb.DIRECTORY or (inode.parent, inode.name) == (parent, name):
        return []
    if await entry_names_inode(ns, inode.parent, inode.name, inode.inode):
        return [problem(pb.EXTRA_NAME, f"names directory {entry.inode}, whose place is in {inode.parent}")]
    return [problem(pb.WRONG_PARENT, f"is not where directory {entry.inode} says that it is")]


async def _check_inode_record(ns: Namespace, key: bytes) -> list[Problem]:
    number = keys.inode_of(key)
    inode = await read_inode(ns, number)
    if isinstance(inode, Corrupt):
        return [Problem(pb.UNREADABLE_RECORD, str(inode), key, number)]
    if inode is not None and number > ROOT and number >= await read_counter(ns.tx, keys.NEXT_INODE):
        return [Problem(pb.FREE_NUMBER, f"inode {number} has a number that would be given out again", key, number)]
    return []


async def _check_removal(ns: Namespace, key: bytes) -> list[Problem]:
    number = keys.removed_inode(key)
    if await ns.tx.get(key) is None or await read_inode(ns, number) is not None:
        return []
    return [Problem(pb.QUEUED_NOTHING, f"inode {number} is to be freed, but does not exist", key, number)]


async def _check_readable(ns: Namespace, key: bytes) -> list[Problem]:
    """These records are cleared or replaced in time, whatever they say; for that they must be readable."""
    value = await ns.tx.get(key)
    kind = next((kind for (begin, end), kind in READABLE.items() if begin <= key < end), None)
    try:
        if value is not None and kind is not None:
            records.decode(value, kind, key)
    except Corrupt as error:
        return [Problem(pb.UNREADABLE_RECORD, str(error), key)]
    return []


async def _check_attached(ns: Namespace, key: bytes) -> list[Problem]:
    if keys.TIMES[0] <= key < keys.TIMES[1] and keys.is_subdirectory(key):
        return await _check_subdir_link(ns, key)
    number = keys.inode_of(key)
    inode = await read_inode(ns, number)
    value = await ns.tx.get(key)
    if value is None or isinstance(inode, Corrupt):
        return []
    kind = key[:4].decode("ascii", "replace")
    # A hold or a lock may be stored just after its file is gone (`ops/renew_lease.py`); it ends with its lease.
    needed = not key.startswith((keys.HOLDS[0], keys.LOCKS[0]))
    times = key.startswith(keys.TIMES[0])
    if (inode is None and needed) or (inode is not None and times and inode.type != pb.DIRECTORY):
        detail = f"a {kind} record belongs to inode {number}, which has none"
        return [Problem(pb.ATTACHED_TO_NOTHING, detail, key, number)]
    try:
        if times or key.startswith(keys.XATTRS[0]):
            records.decode(value, DirectoryTimes if times else XattrRecord, key)
            return []
        if await _is_leased(ns, key, value):
            return []
    except Corrupt as error:
        return [Problem(pb.UNREADABLE_RECORD, str(error), key, number)]
    return [Problem(pb.HELD_BY_NOBODY, f"a {kind} record of inode {number} is under no lease", key, number)]


async def _check_subdir_link(ns: Namespace, key: bytes) -> list[Problem]:
    """Each subdirectory has its key, and each key its subdirectory. In a damaged tree other problems are repaired
    first."""
    parent, number = keys.subdirectory_of(key)
    child = await read_inode(ns, number)
    if isinstance(child, Corrupt):
        return []
    counted = await ns.tx.get(key) is not None
    there = False
    if isinstance(child, pb.Inode) and child.type == pb.DIRECTORY and child.nlink:
        if not await entry_names_inode(ns, child.parent, child.name, number):
            return []  # reported for the directory itself
        there = child.parent == parent
    if counted and not there:
        detail = f"directory {parent} counts {number} among its links, which is no directory in it"
        return [Problem(pb.ATTACHED_TO_NOTHING, detail, key, parent)]
    if there and not counted:
        return [Problem(pb.NOT_COUNTED, f"directory {parent} does not count {number} among its links", key, parent)]
    return []


async def _is_leased(ns: Namespace, key: bytes, value: bytes) -> bool:
    """Whether the lease of a record stands, or has ended and waits for the lease reaper."""
    if key.startswith(keys.HOLDS[0]):
        client, lease = key[-keys.CLIENT_BYTES :], records.decode(value, ReadHold, key).lease
    elif key.startswith(keys.LOCKS[0]):
        client, lease = keys.client_of_lock(key), records.decode(value, ClientLocks, key).lease
    else:
        session = records.decode(value, WriteSession, key)
        client, lease = session.client, session.lease
    return await ns.tx.get(keys.ended(lease)) is not None or await _has_lease(ns, client, lease)


async def _has_lease(ns: Namespace, client: bytes, lease: int) -> bool:
    try:
        return lease == await leases.current(ns.tx, client)
    except Corrupt:  # reported for the record of the client; the lease reaper releases what it holds
        return True


# ---- inodes ----


async def check_inode(ns: Namespace, subject: pb.FsckSubject) -> list[Problem]:
    """An inode has as many names as it counts, and is queued for removal when it has none. One that is being freed gets
    no name back, so an entry that names it is wrong, and not its count."""
    number = subject.inode
    inode = await read_inode(ns, number)
    if inode is None or isinstance(inode, Corrupt) or number == ROOT:
        return []
    if subject.ctime_ns and subject.ctime_ns != inode.ctime_ns:
        return []  # it was moved, or got or lost a name, during the scan for its names
    places = {(name.parent, name.name) for name in subject.names}
    if inode.type == pb.DIRECTORY:
        places.add((inode.parent, inode.name))
    if is_freed(inode):
        places = set()
    found = tuple(sorted([place for place in places if await entry_names_inode(ns, *place, number)]))
    queued = tuple([key for key in subject.queued if await ns.tx.get(key) is not None])

    def problem(kind: pb.FsckKind, detail: str) -> list[Problem]:
        return [Problem(kind, f"inode {number} {detail}", keys.inode(number), number, names=found, queued=queued)]

    directory = inode.type == pb.DIRECTORY
    right = bool(inode.nlink) == bool(found) if directory else inode.nlink == len(found)
    if (
        not found
        and not inode.nlink
        and not queued
        and not (inode.unnamed and await write_sessions.is_open(ns, number))
    ):
        return problem(pb.NOT_QUEUED, "has no name, and is not in the queue of what is to be freed")
    if not found and inode.nlink:
        return problem(pb.ORPHAN, "has no name")
    if not right:
        return problem(pb.WRONG_LINKS, f"has {len(found)} names, but nlink is {inode.nlink}")
    if found and queued:
        return problem(pb.QUEUED_NAMED, "is to be freed, but has a name")
    return []


async def _check_length(ns: Namespace, subject: pb.FsckSubject) -> list[Problem]:
    """A client that has the file open will still report its length; a file without a name is being freed."""
    inode = await read_inode(ns, subject.inode)
    if not isinstance(inode, pb.Inode) or inode.type != pb.FILE or not inode.nlink or inode.length >= subject.end:
        return []
    if await write_sessions.is_open(ns, subject.inode):
        return []
    detail = f"inode {subject.inode} has {inode.length} bytes, but a chunk of it ends at {subject.end}"
    return [Problem(pb.WRONG_LENGTH, detail, keys.inode(subject.inode), subject.inode)]


async def _check_usage(ns: Namespace, subject: pb.FsckSubject) -> list[Problem]:
    account, counted = subject.kept.account, subject.counted
    missing = await usage.difference(ns.tx, subject.kept, counted)
    if missing == ZERO:
        return []
    who = f"the tree of directory {number_of(account)}" if is_tree(account) else f"user {number_of(account)}"
    detail = (
        f"{who} has {counted.bytes} bytes and {counted.inodes} inodes, "
        f"but {subject.kept.bytes} bytes and {subject.kept.inodes} inodes are on its account"
    )
    return [Problem(pb.WRONG_USAGE, detail, keys.usage(account), account=account, missing=missing)]


async def check_no_loop(ns: Namespace, number: int) -> list[Problem]:
    """Whether the parents of a directory form a loop. If they end elsewhere, that is reported for the directory
    there."""
    seen: set[int] = set()
    at = number
    while at != ROOT and len(seen) < _MAX_LEVELS:
        if at in seen:
            return [Problem(pb.LOOP, f"directory {at} lies below itself", keys.inode(at), at)]
        seen.add(at)
        inode = await read_inode(ns, at)
        if not isinstance(inode, pb.Inode) or not await entry_names_inode(ns, inode.parent, inode.name, at):
            return []
        at = inode.parent
    return []


async def entry_names_inode(ns: Namespace, parent: int, name: bytes, number: int) -> bool:
    """Whether the entry names that inode.

    This read is no conflict: an operation that adds or takes a name writes the inode, and a move keeps their number.
    """
    key = keys.entry(parent, name)
    value = await ns.tx.get(key, snapshot=True)
    if value is None:
        return False
    try:
        entry = records.decode(value, EntryRecord, key)
    except Corrupt:
        return False
    return entry.inode == number


async def read_inode(ns: Namespace, number: int) -> pb.Inode | Corrupt | None:
    """None: there is no record. Corrupt: the record cannot be read as this inode."""
    try:
        inode = await ns.inode(number)
    except Corrupt as error:
        return error
    if inode is not None and inode.inode != number:
        return Corrupt(f"the record of inode {number} says that it is inode {inode.inode}")
    return inode
