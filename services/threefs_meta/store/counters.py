"""Numbers in the store under a key of their own."""

from threefs.kv import records
from threefs.kv.engine_api import Transaction
from threefs.wire.records_pb2 import Counter


async def read_counter(tx: Transaction, key: bytes) -> int:
    value = await tx.get(key)
    return 0 if value is None else records.decode(value, Counter, key).value


def write_counter(tx: Transaction, key: bytes, value: int) -> None:
    tx.set(key, records.encode(Counter(value=value)))
