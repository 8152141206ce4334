"""Dumps: all records of a store in one file, to load them into another engine. Every damage of the file is detected.

The file has a first line with its format, the records, and an end. A record has a header (kind, number, sizes of key
and value), the key, the value, and a checksum of all these. The number is the record's position, so a missing or
repeated record is detected. The end has the number of records and a hash of everything before it.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from threefs.checksums import crc32c
from threefs.errors import AlreadyExists, Corrupt, InvalidArgument
from threefs.kv import retry
from threefs.kv.engine_api import MAX_KEY_BYTES, MAX_VALUE_BYTES, DurableEngine, Engine, Pair, Transaction
from threefs.kv.restore_mark import RESTORE_KEY, complete_mark, read_mark, renew_mark, write_mark

MAGIC = b"threefs store, format 1\n"
#: Greater than every key.
KEYS_END = b"\xff" * (MAX_KEY_BYTES + 1)
_RECORD, _END = 1, 2
_HEADER = struct.Struct("<BQII")  # kind, number, bytes of the key, bytes of the value
_CHECKSUM = struct.Struct("<I")
_DIGEST_BYTES = 32
_PIECE_BYTES = 1 << 20
_MAX_DUMP_S = 24 * 3600.0
_PAGE = 200
_BATCH_BYTES = 400_000
_BATCH_KEYS = 1000
_LOAD_S = 60.0  # for one batch: a remote store may be electing a leader


@dataclass(frozen=True, slots=True)
class Content:
    """The size of a dump."""

    records: int
    length_bytes: int  # of keys and values


def file_bytes(content: Content) -> int:
    """The size of the file of a dump with that content."""
    records = content.records * (_HEADER.size + _CHECKSUM.size) + content.length_bytes
    return len(MAGIC) + records + _HEADER.size + _DIGEST_BYTES


async def dump(engine: DurableEngine, out: BinaryIO) -> Content:
    """Write one state of the store. Raises TooOld, Conflict if the store does not keep that state for long enough,
    StrangeStore if it was loaded only in part."""
    writer = Writer(out)
    tx = engine.begin(_MAX_DUMP_S)
    await read_mark(tx)
    after = b""
    while True:
        pairs = await tx.get_range(after, KEYS_END, limit=_PAGE, snapshot=True)
        for pair in pairs:
            if pair[0] != RESTORE_KEY:
                writer.put(pair)
        if len(pairs) < _PAGE:
            await tx.confirm()
            return writer.end()
        after = pairs[-1][0] + b"\0"


class Writer:
    """Writes a dump, record by record."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._hash = hashlib.sha256()
        self._records = self._bytes = 0
        self._write(MAGIC)

    def put(self, pair: Pair) -> None:
        key, value = pair
        record = _HEADER.pack(_RECORD, self._records, len(key), len(value)) + key + value
        self._write(record + _CHECKSUM.pack(crc32c(record)))
        self._records += 1
        self._bytes += len(key) + len(value)

    def put_many(self, pairs: Iterable[Pair]) -> None:
        for pair in pairs:
            self.put(pair)

    def end(self) -> Content:
        self._write(_HEADER.pack(_END, self._records, 0, 0))
        self._out.write(self._hash.digest())
        return Content(self._records, self._bytes)

    def _write(self, piece: bytes) -> None:
        self._hash.update(piece)
        self._out.write(piece)


def read(source: BinaryIO) -> Iterator[Pair]:
    """The records. Raises Corrupt; only the end of the iteration confirms that the file is complete."""
    digest = hashlib.sha256()

    def take(size: int, what: str) -> bytes:
        piece = source.read(size)
        if len(piece) != size:
            raise Corrupt(f"the file is cut off in {what}")
        digest.update(piece)
        return piece

    if take(len(MAGIC), "its first line") != MAGIC:
        raise Corrupt(
            "the file is not a dump of a store, or its format is not the one that this version of threefs reads"
        )
    records = 0
    while True:
        head = take(_HEADER.size, f"record {records}")
        kind, number, key_bytes, value_bytes = _HEADER.unpack(head)
        if number != records or kind not in (_RECORD, _END):
            raise Corrupt(f"the file is damaged at record {records}")
        if kind == _END:
            break
        if key_bytes > MAX_KEY_BYTES or value_bytes > MAX_VALUE_BYTES:
            raise Corrupt(
                f"record {records} is damaged: a key of {key_bytes} bytes with a value of {value_bytes} is too large"
            )
        body = take(key_bytes + value_bytes, f"record {records}")
        (checksum,) = _CHECKSUM.unpack(take(_CHECKSUM.size, f"record {records}"))
        if checksum != crc32c(head + body):
            raise Corrupt(f"record {records} does not match its checksum")
        yield body[:key_bytes], body[key_bytes:]
        records += 1
    if source.read(_DIGEST_BYTES) != digest.digest():
        raise Corrupt("the file as a whole does not match its checksum")
    if source.read(1):
        raise Corrupt("something follows the end of the dump")


def check(source: BinaryIO) -> Content:
    """Read a dump to its end. Raises Corrupt."""
    records = length = 0
    for key, value in read(source):
        records += 1
        length += len(key) + len(value)
    return Content(records, length)


def check_whole(source: BinaryIO) -> None:
    """Raises Corrupt if the file is not as it was written. It looks at no record, so it is many times as quick as
    `check`."""
    digest, tail = hashlib.sha256(), b""
    while piece := source.read(_PIECE_BYTES):
        tail += piece
        digest.update(tail[:-_DIGEST_BYTES])
        tail = tail[-_DIGEST_BYTES:]
    if tail != digest.digest():
        raise Corrupt("the file as a whole does not match its checksum")


async def load(engine: Engine, source: BinaryIO) -> Content:
    """Fill an empty store, and mark it as restored. Raises Corrupt before anything is written, AlreadyExists if the
    store is not empty."""
    if not source.seekable():
        raise InvalidArgument("a dump is read twice, first to check it, so it must be a file and no pipe")
    start = source.tell()
    content = check(source)
    await begin_restore(engine)
    source.seek(start)
    await fill(engine, read(source))
    await end_restore(engine)
    return content


async def begin_restore(engine: Engine) -> None:
    """Mark the store as one that is being filled. Raises AlreadyExists."""

    async def begin(tx: Transaction) -> None:
        pairs = await tx.get_range(b"", KEYS_END, limit=2)
        if pairs and (len(pairs) > 1 or pairs[0][0] != RESTORE_KEY):  # an attempt with unknown outcome left the mark
            raise AlreadyExists("the store is not empty, and a dump is loaded only into an empty store")
        write_mark(tx, complete=False)

    await retry.run(engine, begin, timeout_s=_LOAD_S, replayable=True)


async def fill(engine: Engine, pairs: Iterator[Pair]) -> None:
    """Write the records of a dump, in batches."""
    for batch in _batches(pair for pair in pairs if pair[0] != RESTORE_KEY):
        await _put(engine, batch)


async def end_restore(engine: Engine, as_of_ns: int = 0) -> None:
    """Mark the store as complete: a service may settle it, and serve."""

    async def end(tx: Transaction) -> None:
        await complete_mark(tx, as_of_ns)

    await retry.run(engine, end, timeout_s=_LOAD_S, replayable=True)


def _batches(pairs: Iterator[Pair]) -> Iterator[list[Pair]]:
    batch: list[Pair] = []
    size = 0
    for key, value in pairs:
        if batch and (size + len(key) + len(value) > _BATCH_BYTES or len(batch) == _BATCH_KEYS):
            yield batch
            batch, size = [], 0
        batch.append((key, value))
        size += len(key) + len(value)
    if batch:
        yield batch


async def _put(engine: Engine, batch: list[Pair]) -> None:
    async def write(tx: Transaction) -> None:
        await renew_mark(tx)
        for key, value in batch:
            tx.set(key, value)

    await retry.run(engine, write, timeout_s=_LOAD_S, replayable=True)
