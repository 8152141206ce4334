"""Inodes and entries within one transaction, as typed records.

Every read here is noted by the transaction, so a change of what an operation has read (path components, the
parent, the entry itself) is a conflict. Times of directories are the exception: they are written without being read, so
two operations in one directory conflict only if they name the same entry.
"""

from collections.abc import Sequence

from threefs.env.random import Random
from threefs.errors import Corrupt, NotADirectory, NotFound
from threefs.ids import ROOT
from threefs.kv import records
from threefs.kv.engine_api import Transaction
from threefs.leases import LEASE_TICKS
from threefs.wire import common_pb2
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import DirectoryTimes, Removal
from threefs_meta.batch.txn_memo import TxnMemo
from threefs_meta.lease import delegation
from threefs_meta.lease.delegation import Creator, DelegationHeld
from threefs_meta.quota.accounting import (
    NOTHING,
    ONE_REMOVED,
    Account,
    Charges,
    Cost,
    accounts_of,
    add,
    charges_of,
    inherit,
    to_record,
)
from threefs_meta.quota.quota_limits import Quotas
from threefs_meta.store import entry_codec, keys
from threefs_meta.store.entry_codec import Entry
from threefs_meta.store.inode_numbers import TakenNumbers

MAX_COUNTED = 1024  # subdirectories
_TOKEN_BYTES = 8
_CHANGE_MASK = (1 << 64) - 1
#: Each subdirectory has a key of its own beside the times, so two transactions that make subdirectories do not
#: conflict.
_PRESENT = records.encode(common_pb2.Empty())


class Namespace:
    def __init__(
        self,
        tx: Transaction,
        stamp: int | None = None,
        random: Random | None = None,
        quotas: Quotas | None = None,
        memo: TxnMemo | None = None,
        creator: Creator | None = None,
        numbers: TakenNumbers | None = None,
    ) -> None:
        """`stamp` is the tick that removals of this transaction are stamped with. Reads need `tx` alone."""
        self.tx = tx
        self.memo = memo
        self.creator = creator  # None: a service, not a client
        self._numbers = numbers
        self._delegation_replies: dict[int, bytes] = {}  # by directory
        self._freed: set[int] = set()  # inodes that this transaction has forgotten
        self._stamp = stamp
        self._random = random
        self._quotas = quotas
        self._shared: dict[int, pb.Inode | None] = {}  # what `read_shared` has found
        self._quota_marks: dict[int, tuple[int, bool]] = {}  # the accounts of directories that have some
        self._charges: dict[int, Charges] = {}  # what inodes cost, as far as seen and put here
        self._delta: dict[Account, Cost] = {}  # what has changed of that
        self._delta_key = b""
        self._last_changed = (0, 0)  # the directory that was changed last, and when

    @property
    def stamp(self) -> int:
        assert self._stamp is not None, "a transaction that changes something has a stamp"
        return self._stamp

    # ---- inodes ----

    async def new_number(self) -> int:
        """For an inode that this transaction adds. Raises OutOfNumbers."""
        assert self._numbers is not None, "a transaction that changes something has numbers"
        return await self._numbers.take()

    async def inode(self, number: int) -> pb.Inode | None:
        """The record as stored; a directory's times are in another one, see `with_times`."""
        key = keys.inode(number)
        return self._decode(key, await self.tx.get(key))

    async def read_shared(self, number: int) -> pb.Inode | None:
        """The same record, read once for the whole transaction. The caller must not change it."""
        if number not in self._shared:
            self._shared[number] = await self.inode(number)
        return self._shared[number]

    async def inodes(self, numbers: Sequence[int]) -> list[pb.Inode | None]:
        """Many at once."""
        rows = [keys.inode(number) for number in numbers]
        values = await self.tx.get_many(rows)
        return [self._decode(key, value) for key, value in zip(rows, values, strict=True)]

    async def readable_inodes(self, numbers: Sequence[int]) -> list[pb.Inode | None]:
        """Many at once; None also for those whose record is damaged."""
        rows = keys.inodes(numbers)
        values = await self.tx.get_many(rows)
        found: list[pb.Inode | None] = []
        for key, value in zip(rows, values, strict=True):
            try:
                found.append(self._decode(key, value))
            except Corrupt:
                found.append(None)
        return found

    def _decode(self, key: bytes, value: bytes | None) -> pb.Inode | None:
        if value is None:
            return None
        inode = records.decode(value, pb.Inode, key)
        if inode.tree or inode.by_user:
            self._note_charges(inode)
        return inode

    def _note_charges(self, inode: pb.Inode) -> None:
        self._charges.setdefault(inode.inode, charges_of(inode))
        self._quota_marks[inode.inode] = inode.tree, inode.by_user

    async def require_inode(self, number: int) -> pb.Inode:
        """The inode that an entry names."""
        inode = await self.inode(number)
        if inode is None:
            raise Corrupt(f"an entry names inode {number}, which does not exist")
        return inode

    async def require_inodes(self, entries: Sequence[int]) -> list[pb.Inode]:
        """The same for many."""
        found = await self.inodes(entries)
        return [inode or await self.require_inode(number) for number, inode in zip(entries, found, strict=True)]

    async def directory(self, number: int) -> pb.Inode:
        """A directory that entries may be put into, as stored, not to be changed.

        Raises NotFound when it has been removed, NotADirectory.
        """
        if self.memo is not None:
            found = self.memo.directories.get(number)
            if found is not None:
                if found.tree or found.by_user:
                    self._note_charges(found)
                return found
        inode = await self.read_shared(number)
        if inode is None or not inode.nlink:
            raise NotFound(f"directory inode {number} does not exist any more")
        if inode.type != pb.DIRECTORY:
            raise NotADirectory(f"inode {number} is not a directory")
        if self.memo is not None:
            self.memo.directories[number] = inode
        return inode

    async def with_times(self, inode: pb.Inode) -> pb.Inode:
        """Complete what is shown of a directory: its times, and a link count of 2 and one per subdirectory.

        Not to be stored. Beyond MAX_COUNTED subdirectories the count is 1, which tells programs not to rely on it.
        Its change is another one, but not a higher one, when its record or one of its entries has changed: entries draw
        a token instead of raising a number, as two creates in one directory would meet in that.
        """
        if inode.type != pb.DIRECTORY:
            return inode
        inode.ClearField("delegation")
        facts = await self.tx.get_range(*keys.directory_facts(inode.inode), limit=MAX_COUNTED + 2, snapshot=True)
        if facts and not keys.is_subdirectory(facts[0][0]):
            key, value = facts.pop(0)
            times = records.decode(value, DirectoryTimes, key)
            inode.mtime_ns, inode.ctime_ns = times.mtime_ns, max(times.ctime_ns, inode.ctime_ns)
            inode.change = (inode.change + times.token) & _CHANGE_MASK
        if inode.nlink:
            inode.nlink = 2 + len(facts) if len(facts) <= MAX_COUNTED else 1
        return inode

    def put_inode(self, inode: pb.Inode) -> bytes:
        """Store an inode that was read here or is new, and raise its change counter. Returns the stored message."""
        inode.change += 1
        return self.put_inode_unseen(inode)

    def put_inode_unseen(self, inode: pb.Inode) -> bytes:
        """Store what no reader could see, or an access time: the change counter stays, and caches stay valid."""
        number = inode.inode
        assert number not in self._freed, "an inode that was freed does not come back"
        if inode.tree or inode.by_user:
            self._quota_marks[number] = inode.tree, inode.by_user
            self._charge(number, charges_of(inode))
        elif number in self._charges:
            self._charge(number, NOTHING)
        self._invalidate_paths(inode.type)
        shared = self._shared.pop(number, None)
        assert shared is None or inode.change >= shared.change, "a change counter never falls (I17)"
        body = inode.SerializeToString()
        self.tx.set(keys.inode(number), records.encode_body(body))
        return body

    def clear_inode(self, inode: pb.Inode) -> None:
        """Forget an inode. Only a directory may still count its name, which the caller takes away. The caller also ends
        the quota of a directory (`quota/attribution.py`)."""
        assert inode.type == pb.DIRECTORY or not inode.nlink, "an inode with a name is not freed (I10)"
        self._freed.add(inode.inode)
        self._charge(inode.inode, NOTHING)
        self._invalidate_paths(inode.type)
        self._shared.pop(inode.inode, None)
        self.tx.clear(keys.inode(inode.inode))
        if inode.type == pb.DIRECTORY:
            self._last_changed = (0, 0)
            self.tx.clear(keys.times(inode.inode))
            if self.memo is not None:
                self.memo.step_changes[inode.inode] = None

    def clear_inode_at_once(self, inode: pb.Inode) -> None:
        """Forget an inode that does not go through the queue, whose collector would count it as removed."""
        self.clear_inode(inode)
        add(self._delta, ONE_REMOVED, 1)
        self._put_delta()

    def _invalidate_paths(self, kind: pb.InodeType) -> None:
        """From now on a path may lead elsewhere, so the memo forgets paths."""
        if self.memo is not None and kind != pb.FILE:
            self.memo.invalidate_paths()

    def _charge(self, number: int, after: Charges) -> None:
        """Note what the change of an inode adds to or takes from accounts. Written without a read, summed up later."""
        before = self._charges.get(number, NOTHING)
        if before == after:
            return
        assert all(cost.bytes >= 0 and cost.inodes == 1 for cost in after.values()), "each account pays for one inode"
        self._charges[number] = after
        add(self._delta, before, -1)
        add(self._delta, after, 1)
        self._put_delta()

    def _put_delta(self) -> None:
        if not self._delta_key:
            assert self._random is not None, "a transaction that changes what is counted has a source of keys"
            self._delta_key = keys.delta(self.stamp, self._random.token(_TOKEN_BYTES))
        self.tx.set(self._delta_key, records.encode(to_record(self._delta)))

    # ---- entries ----

    async def entry(self, parent: int, name: bytes) -> Entry | None:
        key = keys.entry(parent, name)
        value = await self.tx.get(key)
        return None if value is None else entry_codec.decode(value, key)

    async def entries(self, parent: int, after: bytes, limit: int) -> list[tuple[bytes, Entry]]:
        """(name, entry) by name, behind `after`."""
        pairs = await self.tx.get_range(*keys.entries(parent, after), limit=limit)
        at, decode = keys.NAME_AT, entry_codec.decode
        return [(key[at:], decode(value, key)) for key, value in pairs]

    async def is_empty(self, directory: int) -> bool:
        """The creation of a first entry conflicts with this read."""
        return not await self.tx.get_range(*keys.entries(directory), limit=1)

    async def put_entry(self, parent: int, name: bytes, inode: pb.Inode, now_ns: int) -> None:
        """Every name that comes into a directory comes through here. Raises DelegationHeld."""
        assert inode.inode not in self._freed, "an entry never names an inode that was freed (I10)"
        assert inode.inode != parent, "a directory is never its own parent (I10)"
        directory = self._shared.get(parent) or await self.read_shared(parent)
        if directory is not None and directory.HasField("delegation"):
            self._check_delegation(directory.delegation, parent, name)
        self._invalidate_paths(inode.type)
        self.tx.set(keys.entry(parent, name), entry_codec.encode(Entry(inode.inode, inode.type)))
        if inode.type == pb.DIRECTORY:
            self.add_subdir_link(parent, inode.inode)
        self.mark_changed(parent, now_ns)

    def _check_delegation(self, held: pb.Delegation, parent: int, name: bytes) -> None:
        ownership = delegation.ownership(held, self.creator, parent, name)
        if ownership is delegation.Ownership.THEIRS:
            raise DelegationHeld(parent, held.client, held.number)
        if ownership is delegation.Ownership.OURS:
            if held.recalled:
                self.put_delegation_reply(parent, recalled=held.number)
            else:
                self.put_delegation_reply(parent, granted=held.number)

    def put_delegation_reply(self, directory: int, *, granted: int = 0, recalled: int = 0) -> None:
        """Tell the holder of a delegation, by its number, that it stands or that it is recalled."""
        # These fields have the same numbers in all replies.
        self._delegation_replies[directory] = pb.InodeReply(delegation=granted, recalled=recalled).SerializeToString()

    def take_delegation_replies(self) -> dict[int, bytes]:
        """The delegation fields of replies, serialized, by directory. Each goes out once, appended to a reply."""
        replies, self._delegation_replies = self._delegation_replies, {}
        return replies

    def take_delegation_reply(self) -> bytes:
        """The delegation fields of the directory that got a name last: the reply of one change has room for one."""
        return next(reversed(self.take_delegation_replies().values()), b"")

    def add_subdir_link(self, parent: int, directory: int) -> None:
        """Among the links of its parent."""
        self.tx.set(keys.subdirectory(parent, directory), _PRESENT)

    def remove_subdir_link(self, parent: int, directory: int) -> None:
        self.tx.clear(keys.subdirectory(parent, directory))

    def clear_entry(self, parent: int, name: bytes, entry: Entry | pb.Inode, now_ns: int) -> None:
        """`entry`: what it names."""
        self.tx.clear(keys.entry(parent, name))
        self._invalidate_paths(entry.type)
        if entry.type == pb.DIRECTORY:
            self.remove_subdir_link(parent, entry.inode)
        self.mark_changed(parent, now_ns)

    async def add(self, parent: int, name: bytes, inode: pb.Inode, replaced: pb.Inode | None = None) -> bytes:
        """A new inode under its first name; the message as it is stored. It counts for whom its directory does.

        `replaced` has just lost the name. Raises QuotaExceeded, DelegationHeld.
        """
        assert inode.nlink == 1, "a new inode has one name"
        if parent in self._quota_marks:
            inode.tree, inode.by_user = self._quota_marks[parent]
            if self._quotas is not None and not inode.trash:  # a removal needs a directory of the trash
                self._check_quotas(self._quotas, inode, replaced)
        body = self.put_inode(inode)
        await self.put_entry(parent, name, inode, inode.birth_ns)
        return body

    def _check_quotas(self, quotas: Quotas, inode: pb.Inode, replaced: pb.Inode | None) -> None:
        """What goes in the same transaction makes room, if the same accounts have paid for it. Raises QuotaExceeded."""
        makes_room = replaced is not None and not replaced.nlink and accounts_of(replaced) == accounts_of(inode)
        if not makes_room:
            quotas.check_create(inode)
        if inode.type == pb.FILE:
            before = replaced.length if makes_room and replaced is not None and replaced.type == pb.FILE else 0
            quotas.check_growth(inode, inode.length - before)

    def mark_changed(self, directory: int, now_ns: int) -> None:
        """An entry of the directory has changed: it gets new times and a new token."""
        if self.memo is not None:
            self.memo.step_changes[directory] = now_ns  # written once, after the last step
            return
        if self._last_changed != (directory, now_ns):  # a rename changes its directory twice
            self.set_times(directory, now_ns, now_ns)
            self._last_changed = directory, now_ns

    def set_times(self, directory: int, mtime_ns: int, ctime_ns: int) -> None:
        self._last_changed = (0, 0)
        assert self._random is not None, "a transaction that changes entries has a source of tokens"
        token = int.from_bytes(self._random.token(_TOKEN_BYTES), "big")
        times = DirectoryTimes(mtime_ns=mtime_ns, ctime_ns=ctime_ns, token=token)
        self.tx.set(keys.times(directory), records.encode(times))

    async def directory_token(self, directory: int) -> int:
        """As long as it is the same, the directory has the same entries. 0: nothing is known of that."""
        key = keys.times(directory)
        value = await self.tx.get(key)
        return 0 if value is None else records.decode(value, DirectoryTimes, key).token

    # ---- files without a name ----

    def link_unnamed(self, inode: pb.Inode, directory: pb.Inode) -> None:
        """The first name of a file that was made without one. Raises QuotaExceeded.

        While it is marked as unnamed, a session keeps it: it is in no queue, and the collector does not free it.
        """
        assert inode.unnamed, "only a file that was made without a name is linked so"
        inode.unnamed = False
        inherit(inode, directory)
        if self._quotas is not None:
            self._quotas.check_create(inode)
            self._quotas.check_growth(inode, inode.length)

    # ---- removal ----

    def unlink(self, inode: pb.Inode, now_ns: int) -> None:
        """Take one name from the inode; the caller clears the entry. The last one queues the inode for removal.

        Raises Corrupt, before anything has changed, if the inode counts no name.
        """
        if not inode.nlink:
            raise Corrupt(f"inode {inode.inode} has a name, but its link count is 0; see `threefs fsck`")
        inode.nlink -= 1
        inode.moves += 1
        inode.ctime_ns = now_ns
        if not inode.nlink and inode.type not in (pb.FILE, pb.DIRECTORY) and not inode.xattr_bytes:
            self.clear_inode_at_once(inode)  # nothing belongs to it that would have to be freed
            return
        self.put_inode(inode)
        if not inode.nlink:
            self.queue_removal(inode, now_ns)

    def queue_removal(self, inode: pb.Inode, now_ns: int) -> None:
        """Queue an inode for the collector. A file waits for a lease's length, in which readers announce themselves; a
        directory does not wait."""
        assert not inode.nlink, "an inode with a name is not queued for removal (I10)"
        due = self.stamp + LEASE_TICKS if inode.type != pb.DIRECTORY else self.stamp - 1
        record = Removal(type=inode.type, removed_ns=now_ns)
        self.tx.set(keys.removal(due, inode.inode), records.encode(record))


async def make_root(tx: Transaction, now_ns: int, uid: int = 0, gid: int = 0) -> None:
    """The directory that everything hangs from, if there is none yet."""
    ns = Namespace(tx)
    root = await ns.inode(ROOT)
    if root is None:
        root = pb.Inode(inode=ROOT, type=pb.DIRECTORY, mode=0o755, nlink=1, parent=ROOT, uid=uid, gid=gid)
        root.atime_ns = root.mtime_ns = root.ctime_ns = root.birth_ns = now_ns
        ns.put_inode(root)
    elif uid and not (root.uid or root.gid):  # made by a version that did not know users
        root.uid, root.gid = uid, gid
        ns.put_inode(root)


def is_freed(inode: pb.Inode) -> bool:
    """Whether chunks of the file may have been removed already. The mark of a file that has a name again says nothing:
    a repair by an earlier version leaves it."""
    return inode.freed and not inode.nlink
