"""The limits of trees and users, and how much of them is used, as this service last read them.

Usage changes by deltas that are added up about once a second (`quota/aggregator.py`), and limits are checked against
the sums that were read last. So no operation ever waits for a sum. In return all clients together may exceed a limit by
what they do in about two seconds, and each open file by what its client writes between two reports of its length
(`threefs_client/data/handles.py`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import Message

from threefs.errors import Corrupt, QuotaExceeded
from threefs.kv import records
from threefs.kv.engine_api import Pair, Transaction
from threefs.telemetry.damaged_records import DamagedRecords
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import QuotaLimits, Usage
from threefs_meta.quota import accounting
from threefs_meta.quota.accounting import ZERO, Account, Cost
from threefs_meta.resolve import paths
from threefs_meta.store import keys

_PATHS_AT_ONCE = 16

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class QuotaStatus:
    """The limits of one account, and what it uses."""

    limits: QuotaLimits
    used: Cost
    path: str = ""  # of a tree; empty until it has been looked up

    @property
    def bytes_exhausted(self) -> bool:
        return 0 < self.limits.bytes <= self.used.bytes

    @property
    def inodes_exhausted(self) -> bool:
        return 0 < self.limits.inodes <= self.used.inodes


class Quotas:
    def __init__(self) -> None:
        self._statuses: dict[Account, QuotaStatus] = {}
        self._paths: dict[Account, str] = {}
        self._last_path_account = b""  # the account whose path was looked up last

    async def load(self, tx: Transaction, damaged: DamagedRecords) -> None:
        """Read all limits, and how much of them is used. The others hold without those that are damaged."""

        def decoded(value: bytes, kind: type[M], key: bytes, effect: str) -> M | None:
            try:
                return records.decode(value, kind, key)
            except Corrupt as error:
                damaged.pass_over(key, error, effect)
                return None

        limits = await _read_all(tx, keys.LIMITS)
        accounts = [keys.account_of(key) for key, _ in limits]
        usage = await tx.get_many([keys.usage(account) for account in accounts], snapshot=True)
        known = {
            account: one
            for account, (key, value) in zip(accounts, limits, strict=True)
            if (one := decoded(value, QuotaLimits, key, "a quota cannot be read, and limits nothing")) is not None
        }
        used = {
            account: Cost(found.bytes, found.inodes)
            for account, value in zip(accounts, usage, strict=True)
            if account in known and value is not None
            if (found := decoded(value, Usage, keys.usage(account), "the usage of a quota cannot be read")) is not None
        }
        whole = _with_trees_below(known, used)
        await self._look_up_paths(tx, [one for one in known if not known[one].ended], damaged)
        self._statuses = {
            account: QuotaStatus(found, whole.get(account, ZERO), self._paths.get(account, ""))
            for account, found in known.items()
        }

    async def _look_up_paths(self, tx: Transaction, accounts: list[Account], damaged: DamagedRecords) -> None:
        """Look up the paths of a few trees at a time, in turn. They are for messages, so they may be a little old."""
        self._paths = {account: self._paths[account] for account in accounts if account in self._paths}
        trees = sorted(filter(accounting.is_tree, accounts))
        behind = [account for account in trees if account > self._last_path_account] or trees
        for account in behind[:_PATHS_AT_ONCE]:
            self._last_path_account = account
            try:
                path = await paths.path_of(tx, accounting.number_of(account))
            except Corrupt as error:
                damaged.pass_over(keys.limits(account), error, "the path of a quota cannot be found")
                path = b""
            self._paths[account] = paths.shown(path) if path else ""

    def nearest(self, account: Account) -> tuple[Account, QuotaStatus] | None:
        """The account, or the next one around it, that has limits: its quota has not ended."""
        return next((found for found in self._around(account) if not found[1].limits.ended), None)

    def statuses(self, after: Account, most: int) -> list[tuple[Account, QuotaStatus]]:
        """Up to `most` behind account `after`, in order of the accounts."""
        behind = sorted(item for item in self._statuses.items() if item[0] > after and not item[1].limits.ended)
        return behind[:most]

    def unused(self) -> list[Account]:
        """The trees whose quota has ended, and for which nothing counts any more."""
        return [account for account, found in self._statuses.items() if found.limits.ended and found.used == ZERO]

    def check_create(self, inode: pb.Inode) -> None:
        """Raise QuotaExceeded unless the accounts of the inode may have one inode more."""
        for account, status in self._above(inode):
            if status.inodes_exhausted:
                raise QuotaExceeded(
                    f"{_describe(account, status)} has {status.used.inodes} of at most {status.limits.inodes} files "
                    "and directories; remove some, or ask the administrator for more (`threefs quota`)"
                )

    def check_growth(self, inode: pb.Inode, more: int) -> None:
        """Raise QuotaExceeded unless a file may become `more` bytes longer."""
        for account, status in self._above(inode) if more > 0 else ():
            if 0 < status.limits.bytes < status.used.bytes + more:
                raise QuotaExceeded(
                    f"{_describe(account, status)} has {status.used.bytes} of at most {status.limits.bytes} bytes, "
                    f"and {more} more do not fit; remove files, or ask the administrator for more (`threefs quota`)"
                )

    def is_over(self, inode: pb.Inode) -> bool:
        """Whether the file may not become longer."""
        return bool(self._statuses) and any(status.bytes_exhausted for _, status in self._above(inode))

    def _above(self, inode: pb.Inode) -> Iterable[tuple[Account, QuotaStatus]]:
        if not (inode.tree or inode.by_user) or not self._statuses:
            return
        for account in accounting.accounts_of(inode):
            yield from self._around(account)

    def _around(self, account: Account) -> Iterable[tuple[Account, QuotaStatus]]:
        """The account, and those of the trees that it lies in."""
        status = self._statuses.get(account)
        seen = set()
        while status is not None and account not in seen:
            yield account, status
            seen.add(account)
            if not status.limits.parent:
                break
            account = accounting.tree_account(status.limits.parent)
            status = self._statuses.get(account)


def _with_trees_below(limits: dict[Account, QuotaLimits], used: dict[Account, Cost]) -> dict[Account, Cost]:
    """The usage of each account; that of a tree includes the trees that lie in it."""
    whole = dict(used)
    for account, cost in used.items():
        seen = {account}  # ends the loop, whatever the records say
        above = accounting.tree_account(limits[account].parent)
        while above in limits and above not in seen:
            accounting.add(whole, {above: cost}, 1)
            seen.add(above)
            above = accounting.tree_account(limits[above].parent)
    return whole


async def _read_all(tx: Transaction, of: tuple[bytes, bytes]) -> list[Pair]:
    return await tx.get_range(*of, snapshot=True)


def _describe(account: Account, status: QuotaStatus) -> str:
    if accounting.is_tree(account):
        return f"the tree {status.path}" if status.path else "a directory above that has a quota"
    return f"user {accounting.number_of(account)}"
