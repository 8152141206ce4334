"""The lease of a client, within one transaction. What a client holds is held under the number of its lease.

A lease begins with the first session, lock or open file of its client, and the client renews it (`ops/renew_lease.py`).
It ends when the client asks for that, or has not renewed it for the length of a lease, counted in ticks. Then its
record is cleared, so nothing more can be held under it, and the lease reaper (`lease/lease_reaper.py`) releases what
was held.
"""

from collections.abc import Iterable

from threefs.errors import Corrupt, InvalidArgument
from threefs.kv import records
from threefs.kv.engine_api import Transaction
from threefs.leases import LEASE_TICKS
from threefs.wire.records_pb2 import ClientLease, EndedLease, Renewal
from threefs_meta.store import keys
from threefs_meta.store.counters import increase


async def current(tx: Transaction, client: bytes) -> int:
    """The number of the client's lease; 0 if it has none. The end of the lease is a conflict."""
    key = keys.client(client)
    value = await tx.get(key)
    return 0 if value is None else records.decode(value, ClientLease, key).lease


async def ensure(tx: Transaction, client: bytes, stamp: int) -> int:
    """The number of the client's lease, which begins here if it has none."""
    if len(client) != keys.CLIENT_BYTES:
        raise InvalidArgument(f"a client is named by {keys.CLIENT_BYTES} bytes, not {len(client)}")
    lease = await current(tx, client)
    if not lease:
        lease = await increase(tx, keys.LAST_LEASE, 1)
        assert lease > 0, "0 means that a client has no lease"
        tx.set(keys.client(client), records.encode(ClientLease(lease=lease)))
        renew(tx, client, stamp)
    return lease


def renew(tx: Transaction, client: bytes, stamp: int, number: int = 0) -> None:
    """`number` is that of the client's request."""
    tx.set(keys.renewal(client), records.encode(Renewal(stamp=stamp, number=number)))


async def last_renewal_number(tx: Transaction, client: bytes) -> int:
    """The number of the last request to renew the client's lease; 0 if none is known."""
    key = keys.renewal(client)
    value = await tx.get(key)
    try:
        return 0 if value is None else records.decode(value, Renewal, key).number
    except Corrupt:
        return 0  # this renewal replaces the damaged record


async def end(tx: Transaction, client: bytes, lease: int) -> None:
    """End this lease, if it is still the client's: the lease reaper releases what is held under it."""
    if lease == await current(tx, client):
        tx.set(keys.ended(lease), records.encode(EndedLease(client=client)))
        tx.clear(keys.client(client))
        tx.clear(keys.renewal(client))


async def end_unreadable(tx: Transaction, client: bytes, numbers: Iterable[int]) -> None:
    """End the lease of a client whose record is damaged. One of `numbers` is its lease; the others have ended, too,
    because nothing can be held under a lease that cannot be read. If it can be read by now, nothing is done."""
    try:
        await current(tx, client)
    except Corrupt:
        for number in numbers:
            tx.set(keys.ended(number), records.encode(EndedLease(client=client)))
        tx.clear(keys.client(client))
        tx.clear(keys.renewal(client))


def make_silent(tx: Transaction, client: bytes) -> None:
    """Have the lease reaper end the lease at its next turn."""
    renew(tx, client, 0)


def is_silent(stamp: int, tick: int) -> bool:
    """Whether a lease that was renewed at `stamp` has ended in this tick."""
    return tick >= stamp + LEASE_TICKS
