"""Quotas and how much of them is used: sums that are kept, however large the tree is."""

from threefs.ids import ROOT
from threefs.kv.engine_api import Transaction
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import permissions
from threefs_meta.access.credentials import actor_of
from threefs_meta.context import Context
from threefs_meta.quota import accounting
from threefs_meta.quota.accounting import Account
from threefs_meta.quota.limits import Quotas, QuotaStatus
from threefs_meta.resolve.directory_path import path_of
from threefs_meta.resolve.resolver import find
from threefs_meta.store import keys
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import run_readonly

_PAGE = 256


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
        await quotas.load(ns.tx)
        status = quotas.status(account)
        return pb.QuotaReply(quota=None if status is None else await _quota(ns, account, status))

    return await run_readonly(context, work)


async def list_quotas(context: Context, request: pb.ListQuotasRequest) -> pb.ListQuotasReply:
    actor = actor_of(request)

    async def work(ns: Namespace) -> pb.ListQuotasReply:
        permissions.check_administrator(await ns.require_inode(ROOT), actor, "all quotas are listed")
        quotas = Quotas()
        await quotas.load(ns.tx)
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
        quota.path = await path_of(ns.tx, quota.tree)
    else:
        quota.uid = accounting.number_of(account)
    return quota


async def _is_counting(tx: Transaction) -> bool:
    return bool(await tx.get_range(*keys.RETAGS, limit=1, snapshot=True))
