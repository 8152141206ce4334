"""The mark of a store that was loaded from a backup.

It is written with the first records, completed after the last one, and taken away by the service that first serves from
the store. So a store that was loaded only in part is known, and whatever must be raised after a restore is raised once.
"""

from threefs.errors import StrangeStore
from threefs.kv import records
from threefs.kv.engine_api import Transaction
from threefs.wire.records_pb2 import RestoreMark

RESTORE_KEY = b"CONF|restored"


async def read_mark(tx: Transaction) -> RestoreMark | None:
    """None: nothing is to be settled. Raises StrangeStore if the store was loaded in part only."""
    value = await tx.get(RESTORE_KEY)
    if value is None:
        return None
    mark = records.decode(value, RestoreMark, RESTORE_KEY)
    if not mark.complete:
        raise StrangeStore(
            "the store was loaded from a backup only in part: restore it again (`threefs restore`; a store in etcd or "
            "PostgreSQL has to be emptied first)"
        )
    return mark


async def in_part(tx: Transaction) -> bool:
    """Whether the store was loaded only in part, and so was never of use to anybody."""
    value = await tx.get(RESTORE_KEY)
    return value is not None and not records.decode(value, RestoreMark, RESTORE_KEY).complete


def write_mark(tx: Transaction, *, complete: bool, as_of_ns: int = 0) -> None:
    tx.set(RESTORE_KEY, records.encode(RestoreMark(complete=complete, as_of_ns=as_of_ns)))


def settle(tx: Transaction) -> None:
    """What had to be raised has been raised, in this transaction."""
    tx.clear(RESTORE_KEY)
