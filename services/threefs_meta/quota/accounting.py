"""The cost of an inode, and the accounts that pay for it: the arithmetic of quotas.

An inode stores for which tree it counts, and whether it counts for its owner. It got both from its directory when it
was made or moved there. So the usage of an account is by definition the sum over the inodes that name it, at any
moment, and a recount can check it at any time.
"""

from collections.abc import Mapping
from typing import NamedTuple

from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import UsageDelta

Account = bytes
_TREE, _USER = b"t", b"u"


class Cost(NamedTuple):
    bytes: int  # lengths of files
    inodes: int


Charges = Mapping[Account, Cost]
NOTHING: Charges = {}
ZERO = Cost(0, 0)
#: No quota: inodes that were removed at once. The aggregator adds them to the count of all removed inodes.
REMOVED: Account = b"r"
ONE_REMOVED: Charges = {REMOVED: Cost(0, 1)}


def tree_account(directory: int) -> Account:
    return _TREE + directory.to_bytes(8, "big")


def user_account(uid: int) -> Account:
    return _USER + uid.to_bytes(4, "big")


def is_tree(account: Account) -> bool:
    return account[:1] == _TREE


def number_of(account: Account) -> int:
    """The directory or the user."""
    return int.from_bytes(account[1:], "big")


def accounts_of(inode: pb.Inode) -> list[Account]:
    """The accounts that pay for an inode."""
    accounts = [tree_account(inode.tree)] if inode.tree else []
    return [*accounts, user_account(inode.uid)] if inode.by_user else accounts


def charges_of(inode: pb.Inode) -> Charges:
    """The cost of an inode for each account: nothing after it has lost its last name."""
    if not (inode.tree or inode.by_user) or not inode.nlink:
        return NOTHING
    cost = Cost(inode.length if inode.type == pb.FILE else 0, 1)
    return dict.fromkeys(accounts_of(inode), cost)


def add(sums: dict[Account, Cost], charges: Charges, sign: int) -> None:
    """Add charges to sums (`sign` 1), or take them away (-1)."""
    assert sign in (1, -1), "a charge counts once"
    for account, cost in charges.items():
        before = sums.get(account, ZERO)
        sums[account] = Cost(before.bytes + sign * cost.bytes, before.inodes + sign * cost.inodes)


def is_quota_root(inode: pb.Inode) -> bool:
    """Whether this is a directory with a quota of its own."""
    return inode.type == pb.DIRECTORY and inode.tree == inode.inode


def inherit(inode: pb.Inode, parent: pb.Inode) -> bool:
    """Count the inode for the accounts of its directory; True if these are other ones than before."""
    assert parent.type == pb.DIRECTORY, "only a directory passes its accounts on"
    tree = inode.inode if is_quota_root(inode) else parent.tree
    before = inode.tree, inode.by_user
    inode.tree, inode.by_user = tree, parent.by_user
    return before != (inode.tree, inode.by_user)


def to_record(sums: Charges) -> UsageDelta:
    record = UsageDelta()
    for account, cost in sums.items():
        if cost != ZERO:
            record.charges.add(account=account, bytes=cost.bytes, inodes=cost.inodes)
    return record


def from_record(record: UsageDelta) -> Charges:
    return {charge.account: Cost(charge.bytes, charge.inodes) for charge in record.charges}
