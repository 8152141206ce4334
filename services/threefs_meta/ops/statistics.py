"""Reports what this service has done, and what waits in the store for the background work of any service."""

from threefs import store_disk
from threefs.wire import meta_pb2 as pb
from threefs_meta.context import Context
from threefs_meta.quota import accounting
from threefs_meta.store import keys
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import run_readonly

MAX_COUNTED = 1000
MAX_QUOTAS = 256


def counted(context: Context) -> pb.StatisticsReply:
    """What needs no answer of the store."""
    disk = store_disk.describe(context.engine)
    if disk is not None:
        disk.removals_only = store_disk.removals_only(context.engine)
    transaction_counts, totals, now = context.engine.transaction_counts, context.statistics, context.clock.monotonic()
    rates = totals.rates(now, transaction_counts)
    reply = pb.StatisticsReply(
        uptime_ms=int((now - context.started_at) * 1000),
        transactions=transaction_counts.committed,
        again=transaction_counts.retried,
        names_per_s=rates.names,
        transactions_per_s=rates.transactions,
        again_per_s=rates.retried,
        store_disk=disk,
    )
    for method, calls in sorted(totals.calls.items()):
        if calls.calls:
            reply.calls.add(
                method=method,
                calls=calls.calls,
                names=calls.names,
                refused=calls.refused,
                failed=calls.failed,
                seconds=calls.seconds,
            )
    for account, status in context.quotas.statuses(b"", MAX_QUOTAS):
        number = accounting.number_of(account)
        reply.quotas.add(
            tree=number if accounting.is_tree(account) else 0,
            uid=0 if accounting.is_tree(account) else number,
            limit_bytes=status.limits.bytes,
            limit_inodes=status.limits.inodes,
            used_bytes=max(0, status.used.bytes),
            used_inodes=max(0, status.used.inodes),
        )
    return reply


async def statistics(context: Context, request: pb.StatisticsRequest) -> pb.StatisticsReply:
    reply = counted(context)
    if reply.store_disk.full:  # it refuses reads of what it could not make durable, and this answer says why
        return reply

    async def waiting(ns: Namespace) -> None:
        tick, fronts = context.logical_clock.tick, context.fronts
        reply.removals_waiting = await _count(ns, *keys.removals_from(fronts.removals.first(tick)))
        reply.leases_ending = await _count(ns, *keys.ENDED)
        reply.charges_waiting = await _count(ns, *keys.deltas(fronts.deltas.first(tick)))

    await run_readonly(context, waiting)
    return reply


async def _count(ns: Namespace, begin: bytes, end: bytes) -> int:
    return len(await ns.tx.get_range(begin, end, limit=MAX_COUNTED, snapshot=True))
