"""A page of one table for `threefs fsck`: what it needs to count names, and the records that look wrong.

Each page is of one moment, two pages are not. So suspects are checked again in one transaction (`ops/fsck_recheck.py`).
"""

import asyncio

from threefs.errors import Corrupt, InvalidArgument
from threefs.ids import ROOT
from threefs.kv import records
from threefs.kv.engine_api import Pair
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import EntryRecord
from threefs_meta.context import Context
from threefs_meta.fsck import usage
from threefs_meta.fsck.checks import READABLE, check_record, entry_names_inode
from threefs_meta.quota import accounting
from threefs_meta.quota.accounting import Account, Cost
from threefs_meta.store import identity, keys
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import run_readonly

MAX_ROWS = 4096
MAX_WANTED = 4096
_YIELD_EVERY = 64  # rows between two chances for other calls

_RANGES = {
    pb.FSCK_ENTRIES: (keys.ENTRIES,),
    pb.FSCK_INODES: (keys.INODES,),
    pb.FSCK_QUEUE: (keys.REMOVALS, keys.TRASH),
    # What else there is, for clients of every release: a page goes on behind a key, so the ranges are in order.
    pb.FSCK_ATTACHED: tuple(sorted((*keys.ATTACHED, *(table for table in READABLE if table != keys.TRASH)))),
}


async def fsck_scan(context: Context, request: pb.FsckScanRequest) -> pb.FsckScanReply:
    if request.table == pb.FSCK_USAGE:
        return await run_readonly(context, lambda ns: _usage_page(ns, request))
    if request.table not in _RANGES:
        raise InvalidArgument(f"table {request.table} does not exist")
    if len(request.wanted) > MAX_WANTED:
        raise InvalidArgument(f"a call looks for the names of at most {MAX_WANTED} inodes, not {len(request.wanted)}")
    limit = min(request.limit or MAX_ROWS, MAX_ROWS)
    wanted = frozenset(request.wanted)

    async def work(ns: Namespace) -> pb.FsckScanReply:
        pairs = await _pairs(ns, request, limit + 1)
        reply = pb.FsckScanReply(more=len(pairs) > limit, rows=min(len(pairs), limit))
        costs: dict[Account, Cost] = {}
        if request.table == pb.FSCK_INODES and not request.after:
            await _suspect(ns, reply, keys.inode(ROOT))
        for count, (key, value) in enumerate(pairs[:limit], 1):
            await _row(ns, request.table, reply, key, value, wanted, costs)
            reply.after = key
            if count % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
        if request.table == pb.FSCK_INODES:
            record = await identity.read_record(ns.tx)
            reply.restored_ns = 0 if record is None else record.restored_ns
        for account, cost in costs.items():
            reply.usage.add(account=account, bytes=cost.bytes, inodes=cost.inodes)
        return reply

    return await run_readonly(context, work)


async def _usage_page(ns: Namespace, request: pb.FsckScanRequest) -> pb.FsckScanReply:
    limit = min(request.limit or MAX_ROWS, MAX_ROWS)
    found, after = await usage.page(ns.tx, request.after, limit)
    return pb.FsckScanReply(usage=found, rows=len(found), after=after, more=bool(after))


async def _pairs(ns: Namespace, request: pb.FsckScanRequest, limit: int) -> list[Pair]:
    """A page of the table's ranges, one after the other."""
    pairs: list[Pair] = []
    for begin, end in _RANGES[request.table]:
        start = max(begin, request.after + b"\0") if request.after else begin
        if start < end and len(pairs) < limit:
            pairs += await ns.tx.get_range(start, end, limit=limit - len(pairs), snapshot=True)
    return pairs


async def _row(
    ns: Namespace,
    table: pb.FsckTable,
    reply: pb.FsckScanReply,
    key: bytes,
    value: bytes,
    wanted: frozenset[int],
    costs: dict[Account, Cost],
) -> None:
    if table == pb.FSCK_QUEUE and key < keys.REMOVALS[1]:
        await _queue_row(ns, reply, key, wanted)
        return
    await _suspect(ns, reply, key)
    try:
        if table == pb.FSCK_ENTRIES:
            _entry_row(reply, key, records.decode(value, EntryRecord, key), wanted)
        elif table == pb.FSCK_INODES:
            inode = records.decode(value, pb.Inode, key)
            accounting.add(costs, accounting.charges_of(inode), 1)
            await _inode_row(ns, reply, key, inode)
    except Corrupt:
        pass  # the record is a suspect already


async def _suspect(ns: Namespace, reply: pb.FsckScanReply, key: bytes) -> None:
    if await check_record(ns, key):
        reply.suspects.add(key=key)


def _entry_row(reply: pb.FsckScanReply, key: bytes, entry: EntryRecord, wanted: frozenset[int]) -> None:
    reply.inode.append(entry.inode)
    if entry.inode in wanted:
        parent, name = keys.entry_of(key)
        reply.names.add(inode=entry.inode, parent=parent, name=name)


async def _inode_row(ns: Namespace, reply: pb.FsckScanReply, key: bytes, inode: pb.Inode) -> None:
    number = keys.inode_of(key)
    directory = inode.type == pb.DIRECTORY
    reply.inode.append(number)
    reply.type.append(inode.type)
    reply.nlink.append(inode.nlink)
    reply.parent.append(inode.parent if directory else 0)
    if not directory or number == ROOT or not inode.nlink:
        return
    if not await entry_names_inode(ns, inode.parent, inode.name, number):
        reply.suspects.add(inode=number)
    else:
        await _suspect(ns, reply, keys.subdirectory(inode.parent, number))


async def _queue_row(ns: Namespace, reply: pb.FsckScanReply, key: bytes, wanted: frozenset[int]) -> None:
    number = keys.removed_inode(key)
    reply.inode.append(number)
    value = await ns.tx.get(keys.inode(number), snapshot=True)
    try:
        inode = None if value is None else records.decode(value, pb.Inode, keys.inode(number))
    except Corrupt:
        return  # reported for the inode itself
    if inode is None:
        reply.suspects.add(key=key)
    elif inode.nlink or number in wanted:
        reply.suspects.add(inode=number, queued=[key])
