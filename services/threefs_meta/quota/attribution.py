"""Which accounts an inode counts for, and how that changes within one transaction."""

from threefs.kv import records
from threefs.kv.engine_api import Transaction
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import QuotaLimits, Retag
from threefs_meta.quota import accounting
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
    """Whether what the trash keeps counts for the quota of the tree where it was. A tree with a quota of its own counts
    for the one that it lay in."""
    if kept.trash:
        return False
    own = await _limits(ns.tx, kept.tree)
    if own is None or not accounting.is_quota_root(kept):
        return own is not None
    return await _limits(ns.tx, own.parent) is not None


def mark_for_retag(tx: Transaction, directory: int) -> None:
    """Note that the entries of the directory are to be charged to its accounts."""
    tx.set(keys.retag(directory), records.encode(Retag()))


async def put_below(tx: Transaction, tree: int, parent: int) -> None:
    """Note that a tree with a quota of its own lies in tree `parent` from now on (0: in none)."""
    limits = await _limits(tx, tree)
    if limits is not None and limits.parent != parent:
        limits.parent = parent
        tx.set(keys.limits(accounting.tree_account(tree)), records.encode(limits))


async def _limits(tx: Transaction, tree: int) -> QuotaLimits | None:
    key = keys.limits(accounting.tree_account(tree))
    value = await tx.get(key)
    return None if value is None else records.decode(value, QuotaLimits, key)
