"""Checks that the sums of quotas are what the inodes cost.

The inodes are counted page by page, while they change. Each sum stores how often it was changed. If it has not changed
since before the count, the count is that of now. The difference then stays the same, whatever is added up later, so the
repair adds it.
"""

from collections import Counter

from threefs.errors import Corrupt
from threefs.kv import records
from threefs.kv.engine_api import Transaction
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import Usage, UsageDelta
from threefs_meta.quota import accounting
from threefs_meta.quota.accounting import ZERO, Account, Cost
from threefs_meta.store import keys


async def page(tx: Transaction, after: bytes, limit: int) -> tuple[list[pb.FsckUsage], bytes]:
    """A page of sums behind `after`, with the deltas that are not added up yet; the key to go on from, or b"" at the
    end."""
    begin = after + b"\0" if after else keys.USAGE[0]
    pairs = await tx.get_range(begin, keys.USAGE[1], limit=limit, snapshot=True)
    pending, changes = await _pending(tx)
    kept = {keys.account_of(key): _usage(key, value) for key, value in pairs}
    kept.pop(accounting.REMOVED, None)  # an earlier version of the program has added it up like a quota
    last = pairs[-1][0] if len(pairs) == limit else b""
    for account in pending:  # an account without a sum comes where its sum would be
        if begin <= keys.usage(account) and (not last or keys.usage(account) <= last):
            kept.setdefault(account, Usage())
    return [_with_pending(account, kept[account], pending, changes) for account in sorted(kept)], last


async def difference(tx: Transaction, kept: pb.FsckUsage, counted: pb.FsckUsage) -> Cost:
    """The correction of the sum; nothing if the sum has changed since `kept`."""
    key = keys.usage(kept.account)
    value = await tx.get(key, snapshot=True)
    usage = Usage() if value is None else _usage(key, value)
    now = _with_pending(kept.account, usage, *await _pending(tx))
    if now != kept:
        return ZERO
    return Cost(counted.bytes - kept.bytes, counted.inodes - kept.inodes)


def _usage(key: bytes, value: bytes) -> Usage:
    """What a damaged sum counts as when the next change is added to it (`quota/aggregator.py`)."""
    try:
        return records.decode(value, Usage, key)
    except Corrupt:
        return Usage()


async def _pending(tx: Transaction) -> tuple[dict[Account, Cost], Counter[Account]]:
    """The deltas that are not added up, and how many changes they are, by account."""
    sums: dict[Account, Cost] = {}
    changes: Counter[Account] = Counter()
    for key, value in await tx.get_range(*keys.DELTAS, snapshot=True):
        try:
            delta = accounting.from_record(records.decode(value, UsageDelta, key))
        except Corrupt:  # it will not be added up
            continue
        quotas = {account: cost for account, cost in delta.items() if account != accounting.REMOVED}
        accounting.add(sums, quotas, 1)
        changes.update(quotas.keys())
    return sums, changes


def _with_pending(
    account: Account, usage: Usage, pending: dict[Account, Cost], changes: Counter[Account]
) -> pb.FsckUsage:
    more = pending.get(account, ZERO)
    return pb.FsckUsage(
        account=account,
        bytes=usage.bytes + more.bytes,
        inodes=usage.inodes + more.inodes,
        changes=usage.changes + changes[account],
    )
