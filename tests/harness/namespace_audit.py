"""The checker of invariant I10 over a metadata store: entries, links, parents, cycles, queue, sessions."""

from collections import Counter

from threefs_meta.access.xattrs import COST_BYTES
from threefs_meta.quota import accounting
from threefs_meta.store import keys

from threefs.ids import ROOT
from threefs.kv import records
from threefs.kv.engine_api import Engine
from threefs.kv.engine_url import open_engine, parse
from threefs.wire import common_pb2
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import (
    ClientLease,
    ClientLocks,
    CutMark,
    DirectoryTimes,
    EndedLease,
    EntryRecord,
    LockWait,
    QuotaLimits,
    ReadHold,
    Removal,
    Renewal,
    Replay,
    Retag,
    Trashed,
    Usage,
    UsageDelta,
    WriteSession,
    XattrRecord,
)
from threefs.wire.records_pb2 import Counter as CounterRecord


class Store:
    """Everything, decoded."""

    def __init__(self, pairs: dict[bytes, bytes]) -> None:
        self.inodes: dict[int, pb.Inode] = {}
        self.entries: dict[tuple[int, bytes], EntryRecord] = {}
        self.removals: dict[int, Removal] = {}
        self.sessions: list[int] = []
        self.times: list[int] = []
        self.cuts: list[int] = []
        self.xattr_bytes: dict[int, int] = {}  # of each inode that has extended attributes
        self.leases: set[int] = set()
        self.leases_held: set[int] = set()
        self.subdirectories: set[tuple[int, int]] = set()  # (directory, subdirectory)
        self.usage: dict[bytes, accounting.Cost] = {}  # with what is not added up yet
        self.next_inode = 0
        for key, value in pairs.items():
            self._take(key, value)

    def _take(self, key: bytes, value: bytes) -> None:
        match key[:5]:
            case b"INOD|":
                self.inodes[keys.inode_of(key)] = records.decode(value, pb.Inode, key)
            case b"DENT|":
                self.entries[keys.entry_of(key)] = records.decode(value, EntryRecord, key)
            case b"GCIN|":
                self.removals[keys.removed_inode(key)] = records.decode(value, Removal, key)
            case b"SESS|":
                self.leases_held.add(records.decode(value, WriteSession, key).lease)
                self.sessions.append(keys.inode_of(key))
            case b"HOLD|":
                self.leases_held.add(records.decode(value, ReadHold, key).lease)
            case b"LOCK|":
                self.leases_held.add(records.decode(value, ClientLocks, key).lease)
            case b"CLIE|":
                self.leases.add(records.decode(value, ClientLease, key).lease)
            case b"ENDL|":
                records.decode(value, EndedLease, key)
                self.leases.add(keys.lease_of(key))
            case b"BEAT|":
                records.decode(value, Renewal, key)
            case b"XATT|":
                inode, name = keys.xattr_of(key)
                size = COST_BYTES + len(name) + len(records.decode(value, XattrRecord, key).value)
                self.xattr_bytes[inode] = self.xattr_bytes.get(inode, 0) + size
            case b"TIME|" if keys.is_subdirectory(key):
                records.decode(value, common_pb2.Empty, key)
                self.subdirectories.add(keys.subdirectory_of(key))
            case b"QUSE|":
                usage = records.decode(value, Usage, key)
                accounting.add(self.usage, {keys.account_of(key): accounting.Cost(usage.bytes, usage.inodes)}, 1)
            case b"QDLT|":
                accounting.add(self.usage, accounting.from_record(records.decode(value, UsageDelta, key)), 1)
            case b"QLIM|":
                records.decode(value, QuotaLimits, key)
            case b"CUTS|":
                records.decode(value, CutMark, key)
                self.cuts.append(keys.inode_of(key))
            case b"WAIT|":
                self.leases_held.add(records.decode(value, LockWait, key).lease)
            case b"TRSH|":
                records.decode(value, Trashed, key)
            case b"QTAG|":
                records.decode(value, Retag, key)
            case b"TIME|":
                records.decode(value, DirectoryTimes, key)
                self.times.append(keys.inode_of(key))
            case b"IDEM|":
                records.decode(value, Replay, key)
            case b"CONF|" if key != keys.FORMAT:
                counter = records.decode(value, CounterRecord, key)
                if key == keys.NEXT_INODE:
                    self.next_inode = counter.value
            case b"CONF|":
                assert value.isdigit()
            case other:
                raise AssertionError(f"unknown prefix {other!r}")


async def audit_store(url: str) -> None:
    """What stopped services have left in a store."""
    engine = await open_engine(parse(url))
    try:
        await audit(engine)
    finally:
        await engine.close()


async def audit(engine: Engine) -> Store:
    """Raises AssertionError, which names what is wrong."""
    store = Store(dict(await engine.begin().get_range(b"", b"\xff")))
    check(store)
    return store


def check(store: Store) -> None:
    inodes, entries = store.inodes, store.entries
    root = inodes.get(ROOT)
    assert root is not None and root.type == pb.DIRECTORY and root.nlink == 1, "the root is a directory"
    names = Counter(entry.inode for entry in entries.values())
    for (parent, name), entry in entries.items():
        assert parent in inodes, f"entry {name!r} is in directory {parent}, which does not exist"
        assert inodes[parent].type == pb.DIRECTORY, f"entry {name!r} is in {parent}, which is no directory"
        assert entry.inode in inodes, f"entry {name!r} of {parent} names inode {entry.inode}, which does not exist"
        inode = inodes[entry.inode]
        assert inode.type == entry.type, f"entry {name!r} of {parent} has another type than its inode"
        if inode.type == pb.DIRECTORY:
            assert (inode.parent, inode.name) == (parent, name), f"directory {entry.inode} has another parent"
    for number, inode in inodes.items():
        assert number == inode.inode, f"inode {number} says that it is {inode.inode}"
        assert number < max(store.next_inode, ROOT + 1), f"inode {number} has a number that is still free"
        wanted = names[number] + (number == ROOT)
        assert inode.nlink == wanted, f"inode {number} has nlink {inode.nlink} and {wanted} names"
        queued = number in store.removals
        kept = inode.unnamed and number in store.sessions
        assert not inode.unnamed or (not inode.nlink and kept), f"inode {number} is kept by nobody"
        assert queued == (inode.nlink == 0 and not kept), f"inode {number}: nlink {inode.nlink}, queued: {queued}"
    assert set(store.removals) <= set(inodes), "the removal queue names inodes that do not exist"
    marked = {number for number, inode in inodes.items() if inode.cutting}
    assert marked <= set(store.cuts), f"nobody would end the cuts of {sorted(marked - set(store.cuts))}"
    assert set(store.sessions) <= set(inodes), "a write session is open on an inode that does not exist"
    assert store.leases_held <= store.leases, "something is held under a lease that has ended and is forgotten"
    directories = {number for number, inode in inodes.items() if inode.type == pb.DIRECTORY}
    assert set(store.times) <= directories, "times are kept of what is no directory"
    stored = {number: inode.xattr_bytes for number, inode in inodes.items() if inode.xattr_bytes}
    freed = {number for number in stored if not inodes[number].nlink}  # attributes go before their inode does
    missing = set(stored.items()) ^ set(store.xattr_bytes.items())
    assert {number for number, _ in missing} <= freed, f"the sizes of attributes are wrong: {missing}"
    counted = {(parent, entry.inode) for (parent, _), entry in entries.items() if entry.type == pb.DIRECTORY}
    assert store.subdirectories == counted, f"counted subdirectories differ: {store.subdirectories ^ counted}"
    used = {account: cost for account, cost in store.usage.items() if cost != accounting.ZERO}
    used.pop(accounting.REMOVED, None)  # no quota
    due: dict[accounting.Account, accounting.Cost] = {}
    for inode in inodes.values():
        accounting.add(due, accounting.charges_of(inode), 1)
    assert used == due, f"usage is {used}, and should be {due}"
    _check_reachable(store)


def _check_reachable(store: Store) -> None:
    """From the root or from the queue; a cycle is reached from neither."""
    children: dict[int, list[int]] = {}
    for (parent, _), entry in store.entries.items():
        children.setdefault(parent, []).append(entry.inode)
    waiting = [ROOT, *store.removals]
    reached = set(waiting)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in reached:
                reached.add(child)
                waiting.append(child)
    lost = {number for number, inode in store.inodes.items() if not inode.unnamed} - reached
    assert not lost, f"inodes {sorted(lost)} cannot be reached"
