"""Renew the lease of a client, and record which files it has open for reading.

Opening a file for reading writes nothing. A removed file is kept for the length of a lease (`Namespace.queue_removal`).
Within that time each client that still has it open reports so here, many files in one request. Most files are closed
before that. A request that comes after a newer one of the same client changes nothing: it could name as closed a file
that has been opened again.
"""

import contextlib
from collections.abc import Sequence

from threefs.errors import Corrupt, InvalidArgument
from threefs.kv import records
from threefs.kv.engine_api import Transaction
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import ReadHold
from threefs_meta.context import Context
from threefs_meta.lease import leases
from threefs_meta.store import keys
from threefs_meta.store.namespace import is_freed

MAX_HOLDS = 1024  # in one request


async def renew_lease(context: Context, request: pb.RenewLeaseRequest) -> pb.RenewLeaseReply:
    if len(request.hold) > MAX_HOLDS or len(request.drop) > MAX_HOLDS:
        raise InvalidArgument(
            f"a renewal names at most {MAX_HOLDS} files as open and as closed, not {len(request.hold)} and "
            f"{len(request.drop)}"
        )

    async def attempt(tx: Transaction) -> pb.RenewLeaseReply:
        is_late = request.number < await leases.last_renewal_number(tx, request.client)
        if request.end:
            if not is_late or not request.number:  # clients before 0.3 do not number it
                await leases.end(tx, request.client, request.end)
            return pb.RenewLeaseReply()
        if is_late:
            return pb.RenewLeaseReply(lease=await leases.current(tx, request.client))
        stamp = context.logical_clock.stamp()
        lease = await leases.ensure(tx, request.client, stamp)
        leases.renew(tx, request.client, stamp, request.number)
        gone = await _gone(tx, request.hold)
        hold = records.encode(ReadHold(lease=lease))
        for number in set(request.hold).difference(gone):
            tx.set(keys.hold(number, request.client), hold)
        for number in request.drop:
            tx.clear(keys.hold(number, request.client))
        return pb.RenewLeaseReply(lease=lease, gone=gone)

    return await context.transact(attempt)


async def _gone(tx: Transaction, numbers: Sequence[int]) -> list[int]:
    """The files that cannot be kept any more: they are being freed, or have been.

    A change of a file is a conflict only if it has no name: others are not freed before this lease could end.
    """
    found = await _inodes(tx, numbers, snapshot=True)
    nameless = [number for number, inode in found.items() if inode is not None and not inode.nlink]
    found.update(await _inodes(tx, nameless, snapshot=False))
    return [number for number, inode in found.items() if inode is None or is_freed(inode)]


async def _inodes(tx: Transaction, numbers: Sequence[int], *, snapshot: bool) -> dict[int, pb.Inode | None]:
    """The records, but those that are damaged: such a file is not freed. None: it does not exist."""
    found: dict[int, pb.Inode | None] = {}
    rows = [keys.inode(number) for number in numbers]
    for number, key, value in zip(numbers, rows, await tx.get_many(rows, snapshot=snapshot), strict=True):
        with contextlib.suppress(Corrupt):
            found[number] = None if value is None else records.decode(value, pb.Inode, key)
    return found
