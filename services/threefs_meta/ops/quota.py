"""Set, clear, show and list the quotas of directory trees and users.

A limit holds at once. Inodes that existed before are counted step by step; `Quota.counting` says that this has not
ended. The usage is a stored sum (`quota/aggregator.py`), so it is shown at once, however large the tree is.
"""

import contextlib

from threefs.errors import Corrupt, NotADirectory
from threefs.ids import ROOT
from threefs.kv import records
from threefs.kv.engine_api import Transaction
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import QuotaLimits
from threefs_meta.access import permissions
from threefs_meta.access.credentials import actor_of
from threefs_meta.context import Context
from threefs_meta.quota import accounting, attribution
from threefs_meta.quota.accounting import Account
from threefs_meta.quota.quota_limits import Quotas, QuotaStatus
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import find
from threefs_meta.store import keys
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import NeedsChunkIo, run_mutation, run_readonly

_PAGE = 256


async def set_quota(context: Context, request: pb.SetQuotaRequest) -> pb.QuotaReply:
    actor = actor_of(request)

    async def work(ns: Namespace) -> pb.QuotaReply | NeedsChunkIo:
        permissions.check_administrator(await ns.require_inode(ROOT), actor, "quotas are set")
        limits = QuotaLimits(bytes=request.limit_bytes, inodes=request.limit_inodes)
        if request.HasField("uid"):
            account = accounting.user_account(request.uid)
            await _attribute_to_owners(ns)
            quota = pb.Quota(uid=request.uid)
        else:
            _, directory = await find(ns, request.place, follow=True)
            if directory.type != pb.DIRECTORY:
                raise NotADirectory(f"{paths.shown_place(request.place)} is not a directory")
            account = accounting.tree_account(directory.inode)
            limits.parent = await _set_tree(ns, directory, not request.clear)
            quota = pb.Quota(tree=directory.inode)
        if request.clear:
            await attribution.end_quota(ns.tx, account)
            return pb.QuotaReply()
        await _keep_limits(ns.tx, account, request, limits)
        assert not limits.ended, "a quota that is set limits from now on, also one that had ended"
        ns.tx.set(keys.limits(account), records.encode(limits))
        quota.limit_bytes, quota.limit_inodes, quota.counting = limits.bytes, limits.inodes, True
        return pb.QuotaReply(quota=quota)

    return await run_mutation(context, methods.SET_QUOTA, request.mutation, work)


async def _keep_limits(tx: Transaction, account: Account, request: pb.SetQuotaRequest, limits: QuotaLimits) -> None:
    """Take over those that stay, as they are now: another administrator may have set them since the client looked."""
    if not (request.keep_bytes or request.keep_inodes):
        return
    key = keys.limits(account)
    value = await tx.get(key)
    before = QuotaLimits() if value is None else records.decode(value, QuotaLimits, key)
    if request.keep_bytes:
        limits.bytes = before.bytes
    if request.keep_inodes:
        limits.inodes = before.inodes


async def _set_tree(ns: Namespace, directory: pb.Inode, own: bool) -> int:
    """Give a tree an account of its own, or that of the tree above. Returns the tree above."""
    above = 0
    if directory.inode != ROOT:
        above = (await ns.directory(directory.parent)).tree
    tree = directory.inode if own else above
    if directory.tree != tree:
        directory.tree = tree
        ns.put_inode_unseen(directory)
        attribution.mark_for_retag(ns.tx, directory.inode)
    return above


async def _attribute_to_owners(ns: Namespace) -> None:
    """From the first quota of a user on, every inode counts for its owner."""
    root = await ns.require_inode(ROOT)
    if not root.by_user:
        root.by_user = True
        ns.put_inode_unseen(root)
        attribution.mark_for_retag(ns.tx, ROOT)


async def show_quota(context: Context, request: pb.ShowQuotaRequest) -> pb.QuotaReply:
    actor = actor_of(request)

    async def work(ns: Namespace) -> pb.QuotaReply:
        if request.HasField("uid"):
            if actor.uid != request.uid:
                permissions.check_administrator(await ns.require_inode(ROOT), actor, "quotas of others are shown")
            account = accounting.user_account(request.uid)
        else:
            _, inode = await find(ns, request.place, actor, follow=True)
            account = accounting.tree_account(inode.tree)
        quotas = Quotas()
        await quotas.load(ns.tx, context.damaged)
        found = quotas.nearest(account)
        return pb.QuotaReply(quota=None if found is None else await _quota(ns, *found))

    return await run_readonly(context, work)


async def list_quotas(context: Context, request: pb.ListQuotasRequest) -> pb.ListQuotasReply:
    actor = actor_of(request)

    async def work(ns: Namespace) -> pb.ListQuotasReply:
        permissions.check_administrator(await ns.require_inode(ROOT), actor, "all quotas are listed")
        quotas = Quotas()
        await quotas.load(ns.tx, context.damaged)
        page = quotas.statuses(request.after, _PAGE)
        reply = pb.ListQuotasReply(quotas=[await _quota(ns, account, status) for account, status in page])
        if len(page) == _PAGE:
            reply.next = page[-1][0]
        return reply

    return await run_readonly(context, work)


async def _quota(ns: Namespace, account: Account, status: QuotaStatus) -> pb.Quota:
    quota = pb.Quota(
        limit_bytes=status.limits.bytes,
        limit_inodes=status.limits.inodes,
        used_bytes=max(0, status.used.bytes),
        used_inodes=max(0, status.used.inodes),
        counting=await _is_counting(ns.tx),
    )
    if accounting.is_tree(account):
        quota.tree = accounting.number_of(account)
        with contextlib.suppress(Corrupt):  # of a directory on the way; the quota holds nevertheless
            quota.path = await paths.path_of(ns.tx, quota.tree)
    else:
        quota.uid = accounting.number_of(account)
    return quota


async def _is_counting(tx: Transaction) -> bool:
    return bool(await tx.get_range(*keys.RETAGS, limit=1, snapshot=True))
