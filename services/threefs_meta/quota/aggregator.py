"""Adds up what transactions have charged, counts what existed before a quota, and reloads the limits.

A transaction that changes the usage of an account writes a delta under a key of its own and reads nothing, so creates
never conflict over a sum. The aggregator adds the deltas up, a page in a transaction. Two services may do so at once:
one of them gets a conflict and tries again.

A directory that came under another account (a quota was set or cleared, or it was moved) is noted, with a cursor
through its entries. The aggregator charges these entries to the new account, and notes the directories among them in
turn. So the work goes on after a crash.
"""

from collections import Counter

import structlog

from threefs.background import BackgroundTasks
from threefs.errors import Corrupt, ThreefsError
from threefs.kv import records
from threefs.kv.engine_api import Transaction
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import Retag, Usage, UsageDelta
from threefs_meta.context import Context
from threefs_meta.quota import accounting
from threefs_meta.quota.accounting import ZERO, Cost
from threefs_meta.quota.attribution import attribute_child, end_quota
from threefs_meta.quota.quota_limits import Quotas
from threefs_meta.store import entry_codec, keys
from threefs_meta.store.inode_numbers import count_removed
from threefs_meta.store.namespace import Namespace

DELTAS_PER_TRANSACTION = 512
ENTRIES_PER_TRANSACTION = 128
_PAGES_PER_ROUND = 64
_RETAGS_PER_READ = 16
_DROPPED_PER_TRANSACTION = 128
_IDLE_S = 0.5

_LOG = structlog.get_logger()


class UsageAggregator:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._has_ended_quotas = False  # once per start: those that removed directories have left behind
        self._background = BackgroundTasks()

    def start(self) -> None:
        self._background.start("usage aggregator", self._run())

    async def stop(self) -> None:
        await self._background.stop()

    async def _run(self) -> None:
        while True:
            busy = False
            try:
                busy = await self.run_once()
            except ThreefsError as error:
                _LOG.warning("usage of quotas cannot be added up now", error=str(error))
            if not busy:
                await self._context.clock.sleep(_IDLE_S)

    async def run_once(self) -> bool:
        """One round. Returns whether there was anything to do."""
        if not self._has_ended_quotas:
            await self._context.transact(_end_quotas_of_removed)
            self._has_ended_quotas = True
        added = charged = 0
        for _ in range(_PAGES_PER_ROUND):
            page = await self._context.transact(self._fold_deltas)
            added += page
            if page < DELTAS_PER_TRANSACTION:
                break
        for _ in range(_PAGES_PER_ROUND):
            step = await self._context.transact(self._charge_entries)
            charged += step
            if not step:
                break
        await self._context.transact(lambda tx: self._context.quotas.load(tx, self._context.damaged))
        if self._context.quotas.unused():
            await self._context.transact(self._drop_unused)
        return bool(added or charged)

    async def _charge_entries(self, tx: Transaction) -> int:
        """Charge some entries of a noted directory to its accounts; 0 when no directory is noted whose record can be
        read."""
        ns = self._context.namespace(tx)
        begin, end = keys.RETAGS
        while noted := await tx.get_range(begin, end, limit=_RETAGS_PER_READ, snapshot=True):
            for key, _ in noted:
                try:
                    directory = await ns.inode(keys.inode_of(key))
                except Corrupt as error:  # it stays noted
                    self._context.damaged.pass_over(key, error, "a directory cannot be counted for its quota")
                    continue
                await self._charge_directory(ns, key, directory)
                return 1
            begin = noted[-1][0] + b"\0"
        return 0

    async def _charge_directory(self, ns: Namespace, key: bytes, directory: pb.Inode | None) -> None:
        """Charge its next entries; `key` notes how far they were charged."""
        tx = ns.tx
        value = await tx.get(key)
        if value is None:
            return  # another service has come to the end of it
        if directory is None or not directory.nlink or directory.type != pb.DIRECTORY:
            tx.clear(key)
            return
        after = _cursor(key, value)
        rows = await tx.get_range(*keys.entries(directory.inode, after), limit=ENTRIES_PER_TRANSACTION)
        assert not rows or keys.entry_of(rows[0][0])[1] > after, "each page begins behind the one before"
        for row, named in rows:
            try:
                await attribute_child(ns, entry_codec.decode(named, row).inode, directory)
            except Corrupt as error:
                self._context.damaged.pass_over(row, error, "an entry cannot be counted for its quota")
        if len(rows) < ENTRIES_PER_TRANSACTION:
            tx.clear(key)
        else:
            tx.set(key, records.encode(Retag(after=keys.entry_of(rows[-1][0])[1])))

    async def _fold_deltas(self, tx: Transaction) -> int:
        """Add a page of deltas to the sums. Returns how many there were."""
        tick = self._context.logical_clock.tick
        begin, end = keys.deltas(self._context.fronts.deltas.first(tick))
        pairs = await tx.get_range(begin, end, limit=DELTAS_PER_TRANSACTION, snapshot=True)
        self._context.fronts.deltas.found_empty(keys.tick_of_delta(pairs[0][0]) if pairs else tick, tick)
        assert not pairs or pairs[0][0] >= begin, "what is added up is not looked for again"
        sums: dict[accounting.Account, Cost] = {}
        changes: Counter[accounting.Account] = Counter()
        for key, value in pairs:
            try:
                delta = accounting.from_record(records.decode(value, UsageDelta, key))
            except Corrupt as error:  # `threefs fsck` counts the account again
                self._context.damaged.pass_over(key, error, "a change of a quota's usage is damaged, and is dropped")
                tx.clear(key)
                continue
            accounting.add(sums, delta, 1)
            changes.update(delta.keys())
            tx.add_read_conflict(key)  # another service may add it up too
            tx.clear(key)
        await count_removed(tx, sums.pop(accounting.REMOVED, ZERO).inodes, self._context.damaged)
        for account, cost in sums.items():
            await self._add_to_sum(tx, account, cost, changes[account])
        return len(pairs)

    async def _add_to_sum(self, tx: Transaction, account: accounting.Account, cost: Cost, changes: int) -> None:
        key = keys.usage(account)
        found = await tx.get(key)
        usage = Usage()
        try:
            usage = records.decode(found, Usage, key) if found is not None else usage
        except Corrupt as error:  # `threefs fsck` counts the account, and adds what is missing
            self._context.damaged.pass_over(key, error, "the usage of a quota is damaged, and is counted from 0")
        usage.bytes += cost.bytes
        usage.inodes += cost.inodes
        assert changes > 0, "a sum changes with the number of its changes, by which fsck sees that it has"
        usage.changes += changes
        # A user comes back to nothing often, and the number of changes says that it was more. A tree, which has its
        # directory on its account, does so once: when its quota has ended.
        if (usage.bytes, usage.inodes) == ZERO and accounting.is_tree(account):
            tx.clear(key)
        else:
            tx.set(key, records.encode(usage))

    async def _drop_unused(self, tx: Transaction) -> None:
        """Drop ended quotas for which nothing counts. When all is added up, that says that no inode with a name names
        their trees. So none will: an inode gets its tree from its directory."""
        if await self._fold_deltas(tx) == DELTAS_PER_TRANSACTION:
            return
        quotas = Quotas()
        await quotas.load(tx, self._context.damaged)
        for account in quotas.unused()[:_DROPPED_PER_TRANSACTION]:
            assert accounting.is_tree(account), "only what lies in another tree is kept when it ends"
            if await tx.get(keys.usage(account)) is None:  # not damaged either
                tx.add_read_conflict(keys.limits(account))  # it may be set again
                tx.clear(keys.limits(account))


def _cursor(key: bytes, value: bytes) -> bytes:
    """The last name that was counted. A cursor that cannot be read means the start: to count twice does no harm."""
    try:
        return records.decode(value, Retag, key).after
    except Corrupt:
        return b""


async def _end_quotas_of_removed(tx: Transaction) -> None:
    """The quota of a directory ends when that is removed for good; with earlier versions of the program it did not."""
    for key, _ in await tx.get_range(*keys.LIMITS):
        account = keys.account_of(key)
        if accounting.is_tree(account) and await tx.get(keys.inode(accounting.number_of(account))) is None:
            await end_quota(tx, account)
