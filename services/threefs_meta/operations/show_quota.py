"""Quotas and how much of them is used: sums that are kept, however large the tree is."""

from threefs.ids import ROOT
from threefs.kv.port import Transaction
from threefs.wire import meta_pb2 as pb
from threefs_meta import charges, keys, permissions
from threefs_meta.actors import actor_of
from threefs_meta.charges import Account
from threefs_meta.context import Context
from threefs_meta.directory_path import path_of
from threefs_meta.mutations import run_readonly
from threefs_meta.namespace import Namespace
from threefs_meta.quotas import Quotas, Standing
from threefs_meta.walk import find

_PAGE = 256


async def show_quota(context: Context, request: pb.ShowQuotaRequest) -> pb.QuotaReply:
    actor = actor_of(request)

    async def work(names: Namespace) -> pb.QuotaReply:
        if request.HasField("uid"):
            if actor.uid != request.uid:
                permissions.check_administrator(await names.named(ROOT), actor, "quotas of others are shown")
            account = charges.user_account(request.uid)
        else:
            _, inode = await find(names, request.place, actor, follow=True)
            account = charges.tree_account(inode.tree)
        quotas = Quotas()
        await quotas.load(names.tx)
        standing = quotas.standing(account)
        return pb.QuotaReply(quota=None if standing is None else await _quota(names, account, standing))

    return await run_readonly(context, work)


async def list_quotas(context: Context, request: pb.ListQuotasRequest) -> pb.ListQuotasReply:
    actor = actor_of(request)

    async def work(names: Namespace) -> pb.ListQuotasReply:
        permissions.check_administrator(await names.named(ROOT), actor, "all quotas are listed")
        quotas = Quotas()
        await quotas.load(names.tx)
        page = quotas.standings(request.after, _PAGE)
        reply = pb.ListQuotasReply(quotas=[await _quota(names, account, standing) for account, standing in page])
        if len(page) == _PAGE:
            reply.next = page[-1][0]
        return reply

    return await run_readonly(context, work)


async def _quota(names: Namespace, account: Account, standing: Standing) -> pb.Quota:
    quota = pb.Quota(
        limit_bytes=standing.limits.bytes,
        limit_inodes=standing.limits.inodes,
        used_bytes=max(0, standing.used.bytes),
        used_inodes=max(0, standing.used.inodes),
        counting=await _is_counting(names.tx),
    )
    if charges.is_tree(account):
        quota.tree = charges.number_of(account)
        quota.path = await path_of(names.tx, quota.tree)
    else:
        quota.uid = charges.number_of(account)
    return quota


async def _is_counting(tx: Transaction) -> bool:
    return bool(await tx.get_range(*keys.RETAGS, limit=1, snapshot=True))
