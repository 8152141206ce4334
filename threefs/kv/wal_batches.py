"""The changes of one write of a table, decoded from its batch in the log of RocksDB.

A batch is a sequence of changes. Each has a kind, the key, and the value unless the key is removed; key and value are
preceded by their lengths. Only the kinds that a table writes are decoded; another kind is damage.
"""

from collections.abc import Iterator

from threefs.errors import Corrupt
from threefs.kv.wal_recovery import MARK_KEY

Change = tuple[bytes, bytes | None]

_REMOVED, _PUT = 0, 1
_MAX_VARINT_BYTES = 5


def changes(batch: bytes) -> Iterator[Change]:
    """The changed keys with their new values; None for a removed key. Marks of the log are left out. Raises Corrupt."""
    place = 0
    while place < len(batch):
        kind = batch[place]
        if kind not in (_REMOVED, _PUT):
            raise Corrupt(f"a write of the log has a change of the unknown kind {kind}")
        key, place = _bytes(batch, place + 1)
        value: bytes | None = None
        if kind == _PUT:
            value, place = _bytes(batch, place)
        if key != MARK_KEY:
            yield key, value


def _bytes(batch: bytes, place: int) -> tuple[bytes, int]:
    length = shift = 0
    for number in range(_MAX_VARINT_BYTES + 1):
        if number == _MAX_VARINT_BYTES or place >= len(batch):
            raise Corrupt("a write of the log is cut off or damaged")
        byte = batch[place]
        place += 1
        length |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    if place + length > len(batch):
        raise Corrupt("a write of the log is cut off")
    return batch[place : place + length], place + length
