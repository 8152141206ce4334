"""Renew the lease of a client, and record which files it has open for reading.

Opening a file for reading writes nothing. A removed file is kept for the length of a lease (`Namespace.queue_removal`).
Within that time each client that still has it open reports so here, many files in one request. Most files are closed
before that. A request that comes after a newer one of the same client changes nothing: it could name as closed a file
that has been opened again.
"""

from threefs.errors import InvalidArgument
from threefs.kv import records
from threefs.kv.engine_api import Transaction
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import ReadHold
from threefs_meta.context import Context
from threefs_meta.lease import leases
from threefs_meta.store import keys

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
        stored = await tx.get_many([keys.inode(number) for number in request.hold], snapshot=True)
        gone = [number for number, value in zip(request.hold, stored, strict=True) if value is None]
        hold = records.encode(ReadHold(lease=lease))
        for number in set(request.hold).difference(gone):
            tx.set(keys.hold(number, request.client), hold)
        for number in request.drop:
            tx.clear(keys.hold(number, request.client))
        return pb.RenewLeaseReply(lease=lease, gone=gone)

    return await context.transact(attempt)
