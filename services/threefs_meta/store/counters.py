"""Counters in the store, each a number under a key of its own (`keys.TICK` and others). A counter begins at 0 and never
falls: numbers of inodes and of leases are used once, and time never runs back."""

from threefs.kv import records
from threefs.kv.engine_api import Transaction
from threefs.wire.records_pb2 import Counter


async def read_counter(tx: Transaction, key: bytes) -> int:
    value = await tx.get(key)
    return 0 if value is None else records.decode(value, Counter, key).value


async def increase(tx: Transaction, key: bytes, by: int) -> int:
    """Returns the new value."""
    assert by >= 0, "a counter never falls"
    return _write(tx, key, await read_counter(tx, key) + by)


async def raise_to(tx: Transaction, key: bytes, least: int) -> int:
    """Returns the new value, which is the old one if that was higher already."""
    before = await read_counter(tx, key)
    return before if before >= least else _write(tx, key, least)


def _write(tx: Transaction, key: bytes, value: int) -> int:
    tx.set(key, records.encode(Counter(value=value)))
    return value
