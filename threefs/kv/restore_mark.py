"""The mark of a store that was loaded from a backup.

It is written with the first records and completed after the last one. The first service that serves from the store
removes it. So a store that was loaded only in part is recognized, and the versions that must rise after a restore are
raised once.
"""

from threefs.errors import StrangeStore
from threefs.kv import records
from threefs.kv.engine_api import Transaction
from threefs.wire.records_pb2 import RestoreMark

RESTORE_KEY = b"CONF|restored"


async def read_mark(tx: Transaction) -> RestoreMark | None:
    """The mark; None if the store was not restored, or is settled. Raises StrangeStore if it was loaded only in
    part."""
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
    """Whether the store was loaded only in part. Then no service has ever served from it."""
    value = await tx.get(RESTORE_KEY)
    return value is not None and not records.decode(value, RestoreMark, RESTORE_KEY).complete


def write_mark(tx: Transaction, *, complete: bool, as_of_ns: int = 0) -> None:
    tx.set(RESTORE_KEY, records.encode(RestoreMark(complete=complete, as_of_ns=as_of_ns)))


async def renew_mark(tx: Transaction) -> None:
    """Write the mark anew with each batch of a load. A batch whose outcome is unknown is written again, and the first
    attempt may reach a remote store late: it then conflicts with the newer mark, and undoes nothing. Raises
    StrangeStore if the store is not being loaded any more."""
    value = await tx.get(RESTORE_KEY)
    if value is None:
        raise StrangeStore("the store is not being loaded any more: somebody has emptied it, or serves from it")
    tx.set(RESTORE_KEY, value)


async def complete_mark(tx: Transaction, as_of_ns: int) -> None:
    """Say that the store was loaded. An attempt before may have said so: a service may have named it, or settled it."""
    if await in_part(tx):
        write_mark(tx, complete=True, as_of_ns=as_of_ns)


def put_id(tx: Transaction, mark: RestoreMark, restore_id: str) -> None:
    """Name the restore, so that all services that start on the store speak of the same one."""
    assert mark.complete and not mark.restore_id, "a restore is named once"
    mark.restore_id = restore_id
    tx.set(RESTORE_KEY, records.encode(mark))


def settle(tx: Transaction) -> None:
    """Remove the mark in the transaction that raises the versions."""
    tx.clear(RESTORE_KEY)
