"""Which accounts an inode counts for, and how that changes within one transaction."""

from threefs.errors import Corrupt
from threefs.kv import records
from threefs.kv.engine_api import Transaction
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import QuotaLimits, Retag
from threefs_meta.quota import accounting
from threefs_meta.quota.accounting import Account
from threefs_meta.store import keys
from threefs_meta.store.namespace import Namespace


async def inherit_quota(ns: Namespace, inode: pb.Inode, parent: pb.Inode) -> None:
    """Count an inode that has come into a directory for the accounts of the directory. What lies below it follows step
    by step (`quota/aggregator.py`). The caller stores the inode."""
    if accounting.is_quota_root(inode):
        await put_below(ns.tx, inode.inode, parent.tree)
    if accounting.inherit(inode, parent) and inode.type == pb.DIRECTORY:
        mark_for_retag(ns.tx, inode.inode)


async def attribute_child(ns: Namespace, number: int, directory: pb.Inode) -> None:
    """Count an inode that a directory names for the present accounts of the directory."""
    child = await ns.require_inode(number)
    before = child.tree, child.by_user
    if directory.trash and await _counts_for_another_tree(ns, child):
        child.by_user = directory.by_user
        if before[1] != child.by_user and child.type == pb.DIRECTORY:
            mark_for_retag(ns.tx, number)
    else:
        await inherit_quota(ns, child, directory)
    if before != (child.tree, child.by_user):
        ns.put_inode_unseen(child)


async def _counts_for_another_tree(ns: Namespace, kept: pb.Inode) -> bool:
    """Whether what the trash keeps counts for the quota of the tree where it was, or of one around that. A tree with a
    quota of its own counts for the one that it lay in."""
    if kept.trash:
        return False
    limits = await _limits(ns.tx, kept.tree)
    if limits is not None and accounting.is_quota_root(kept):
        limits = await _limits(ns.tx, limits.parent)
    seen = set()
    while limits is not None and limits.ended and limits.parent not in seen:
        seen.add(limits.parent)
        limits = await _limits(ns.tx, limits.parent)
    return limits is not None and not limits.ended


def mark_for_retag(tx: Transaction, directory: int) -> None:
    """Note that the entries of the directory are to be charged to its accounts."""
    tx.set(keys.retag(directory), records.encode(Retag()))


async def put_below(tx: Transaction, tree: int, parent: int) -> None:
    """Note that a tree with a quota of its own lies in tree `parent` from now on (0: in none)."""
    limits = await _limits(tx, tree)
    if limits is not None and limits.parent != parent:
        limits.parent = parent
        tx.set(keys.limits(accounting.tree_account(tree)), records.encode(limits))


async def end_quota(tx: Transaction, account: Account) -> None:
    """Limit an account no longer. What the trash keeps of a tree, and names it, goes on counting for the tree that it
    lay in: the aggregator drops the record when nothing is left."""
    key = keys.limits(account)
    try:
        limits = await _read(tx, key)
    except Corrupt:  # nobody knows where the tree lay
        limits = None
    if limits is not None and limits.parent:
        tx.set(key, records.encode(QuotaLimits(parent=limits.parent, ended=True)))
    else:
        tx.clear(key)


async def end_quota_of_removed(ns: Namespace, directory: pb.Inode) -> None:
    """End the quota of a directory, if it has one of its own. The caller forgets the directory."""
    if accounting.is_quota_root(directory):
        await end_quota(ns.tx, accounting.tree_account(directory.inode))


async def _limits(tx: Transaction, tree: int) -> QuotaLimits | None:
    return await _read(tx, keys.limits(accounting.tree_account(tree)))


async def _read(tx: Transaction, key: bytes) -> QuotaLimits | None:
    value = await tx.get(key)
    return None if value is None else records.decode(value, QuotaLimits, key)
