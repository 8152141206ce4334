"""The records of chunks in a table, behind a bounded cache of decoded ones. Blobs of chunks and notes of the target lie
beside them, and the generation of the store.

A blob is written and removed in one write of the table with the record that names it, or names it no more. So after a
crash, no record names a missing blob, and there is no blob that no record names.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from itertools import islice
from typing import Protocol

from threefs.errors import Corrupt, NoSpace, ThreefsError
from threefs.ids import ChunkId
from threefs.kv.engine_api import Pair
from threefs.layout import FENCE_CHUNK
from threefs_storage.engine.chunk_record import Record, Version, corrected, decode, encode
from threefs_storage.engine.generation import Generation
from threefs_storage.engine.overlay import BlobKey, OverlayLimits, range_of_blobs

_PAGE = 512
_LAST_PAGE = 8
_LITTLE_BYTES = 4096  # of blobs, which are not worth a fold
AFTER_ALL_CHUNKS = b"\xff" * 13  # no chunk has this key or a later one
_NOTES = b"\xff" * 14  # after the keys of all blobs
_AFTER_NOTES = b"\xff" * 15
_IDENTITY_KEY = _NOTES + b"store"
_IDENTITY_BYTES = 8
#: The note that keeps the logical time of the chain, in minutes.
LOGICAL_TIME = "age"
#: The note that keeps the newest version of the chain. Each release writes it before its target acts in that version.
CHAIN_NOTE = "chain"
_CHAIN_KEY = _NOTES + CHAIN_NOTE.encode()
_GENERATION_KEY = _NOTES + b"generation"
_ANY_FENCE = 1 << 64


class RecordTable(Protocol):
    """The part of threefs.kv.table.Table that the store uses."""

    written: int
    durable: int
    failure: ThreefsError | None
    durable_change: int  # the newest change that survives a crash, counted since the table was made

    @property
    def change(self) -> int: ...
    def get(self, key: bytes) -> bytes | None: ...
    def scan(self, begin: bytes, end: bytes, limit: int = 0, reverse: bool = False) -> list[Pair]: ...
    def write(self, changes: Mapping[bytes, bytes | None]) -> int: ...
    async def flush(self, number: int | None = None) -> None: ...
    async def room_to_open(self) -> int: ...
    async def shorten_log(self) -> None: ...
    async def reopen(self) -> None: ...
    async def close(self) -> None: ...


class RecordStore:
    """A read sees every write before it. After a crash, the table has all writes up to some write, at least up to the
    last one that was flushed.

    The cache has two dictionaries, so that a hit costs one lookup. When the young one is full it replaces the old one,
    and records that are still used move back from there.
    """

    def __init__(self, table: RecordTable, cached_records: int, limits: OverlayLimits | None = None) -> None:
        self.limits = limits or OverlayLimits()
        self.blob_bytes = 0  # of all blobs
        #: Chunks whose committed version is to be folded, in the order of their last changes.
        self.foldable: dict[ChunkId, None] = {}
        self.pending: set[ChunkId] = set()  # chunks that have a pending version
        self.lost: set[ChunkId] = set()  # chunks that have a lost version
        self.fences: dict[int, int] = {}  # by inode: writes with this fence or a lower one are refused
        self.on_failure: Callable[[ThreefsError], None] = lambda error: (
            None
        )  # called when the table cannot be read any more
        self._table = table
        self._unsaved_notes: dict[bytes, bytes] = {}  # notes that found no room yet
        #: Durable ones, which a table that has failed cannot tell any more. At the start all are durable.
        self._kept_notes = dict(table.scan(_NOTES, _AFTER_NOTES))
        self._generation = Generation(
            table, self._kept_notes.pop(_GENERATION_KEY, None), self._kept_notes.get(_CHAIN_KEY, b"")
        )
        self.set_cached_records(cached_records)
        self._young: dict[ChunkId, Record | None] = {}
        self._old: dict[ChunkId, Record | None] = {}

    def set_cached_records(self, count: int) -> None:
        self._half = max(1, count // 2)  # of each dictionary; one that is larger goes when the young one is full

    @property
    def durable(self) -> int:
        """Number of the newest write that survives a crash."""
        return self._table.durable

    @property
    def generation(self) -> int:
        """That of the newest change of a chunk that survives a crash. It only rises."""
        return self._generation.durable

    @property
    def failure(self) -> ThreefsError | None:
        """Why the table takes no more writes."""
        return self._table.failure

    def get(self, chunk: ChunkId) -> Record | None:
        """Raises Corrupt."""
        try:
            return self._young[chunk]
        except KeyError:
            pass
        if chunk in self._old:
            record = self._old[chunk]
        else:
            data = self._get(chunk.key())
            record = None if data is None else decode(chunk, data)
        self._cache(chunk, record)
        return record

    def stored_record(self, chunk: ChunkId) -> Record | None:
        """The record in the table, past the cache; an empty one if there is none, None if it is damaged."""
        data = self._get(chunk.key())
        return Record() if data is None else _readable(chunk, data)

    def write(
        self,
        records: Mapping[ChunkId, Record | None],
        blobs: Mapping[BlobKey, bytes] | None = None,
        *,
        counts: bool = True,
    ) -> int:
        """Write records with their new blobs, remove the blobs that they name no more, and return the number of the
        write for `flush`. With `counts` it raises the generation. After NoSpace, Unavailable or Corrupt, nothing was
        written."""
        rows: dict[bytes, bytes | None] = {}
        grown = 0
        for chunk, record in records.items():
            rows[chunk.key()] = None if record is None else encode(chunk, record)
            before, after = self._blobs(chunk), {} if record is None else record.blobs
            rows.update((BlobKey(chunk, number).encoded(), None) for number in before.keys() - after.keys())
            grown += sum(after.values()) - sum(before.values())
        rows.update((key.encoded(), data) for key, data in (blobs or {}).items())
        number = self._write(rows, counts=counts)
        self.blob_bytes += grown
        for chunk, record in records.items():
            self.update_indexes(chunk, record)
            self._cache(chunk, record)
        return number

    def _blobs(self, chunk: ChunkId) -> Mapping[int, int]:
        """The number of each blob that the chunk has, and its bytes; 0 bytes if the record that says so is damaged."""
        try:
            record = self.get(chunk)
        except Corrupt:
            return {BlobKey.number_of(key): 0 for key, _ in self._scan(*range_of_blobs(chunk), 0)}
        return {} if record is None else record.blobs

    def blob(self, key: BlobKey) -> bytes | None:
        """Raises Corrupt, and what a failed table raises."""
        return self._get(key.encoded())

    def count_blobs(self, record: Record) -> None:
        """Count the blobs of a record. Call this for every record when the table is opened."""
        self.blob_bytes += sum(record.blobs.values())

    def should_fold(self, version: Version | None) -> bool:
        """Whether the content of a version should be in a block of its own. Small content has none: it should be in one
        blob if its blobs have much that no extent shows."""
        if version is None or version.overlay is None or version.lost:
            return False
        if version.block is not None or version.length > self.limits.inline_bytes:
            return True
        return version.overlay.stored_bytes > 2 * max(version.length, _LITTLE_BYTES)

    async def load_identity(self, draw: Callable[[], int]) -> int:
        """The identity of this table, drawn when it is opened for the first time."""
        data = self._table.get(_IDENTITY_KEY)
        if data is None:
            data = draw().to_bytes(_IDENTITY_BYTES, "big")
            await self._table.flush(self._table.write({_IDENTITY_KEY: data}))
        return int.from_bytes(data, "big")

    def note(self, name: str) -> bytes | None:
        """The note with this name."""
        key = _NOTES + name.encode()
        try:
            return self._get(key)
        except ThreefsError:  # it has failed, perhaps because it is closed
            if key not in self._kept_notes:
                raise
            return self._kept_notes[key]

    def put_note(self, name: str, value: bytes | None) -> None:
        """Write a note; None removes it. Not durable at once. Raises NoSpace, Unavailable."""
        key = _NOTES + name.encode()
        self._write({key: value})
        self._kept_notes.pop(key, None)

    async def keep_note(self, name: str, value: bytes) -> None:
        """Write a note durably. Raises NoSpace: `reopen` writes it then, before any other change. Raises Unavailable,
        Corrupt."""
        key = _NOTES + name.encode()
        self._unsaved_notes[key] = value
        await self.flush(self._write(self._with_generation({key: value})))
        self._note_saved({key: value})

    def _with_generation(self, notes: Mapping[bytes, bytes]) -> dict[bytes, bytes | None]:
        """The rows to write for these notes."""
        if _CHAIN_KEY not in notes:
            return dict(notes)
        return {**notes, _GENERATION_KEY: self._generation.row_with(notes[_CHAIN_KEY])}

    def _note_saved(self, notes: Mapping[bytes, bytes]) -> None:
        for key, value in notes.items():
            self._kept_notes[key] = value
            if self._unsaved_notes.get(key) is value:  # else a newer one came meanwhile
                del self._unsaved_notes[key]

    def notice_failure(self) -> None:
        """Report a failure of the table that no change has met: it also writes by itself (marks, sorted files), and is
        flushed by others than changes. Call this now and then."""
        if self._table.failure is not None:
            self.on_failure(self._table.failure)

    def update_indexes(self, chunk: ChunkId, record: Record | None) -> None:
        """Update `pending`, `lost`, `foldable` and `fences`. Call this for every record when the table is opened."""
        if chunk.number == FENCE_CHUNK:
            self._update_fence(chunk.inode, record)
        if record is not None and record.pending is not None:
            self.pending.add(chunk)
        else:
            self.pending.discard(chunk)
        if chunk.number != FENCE_CHUNK and record is not None and _is_lost(record):  # a lost fence waits for a raise
            self.lost.add(chunk)
        elif self.lost:
            self.lost.discard(chunk)
        self.foldable.pop(chunk, None)
        if record is not None and self.should_fold(record.committed):
            self.foldable[chunk] = None

    def index_unreadable(self, chunk: ChunkId) -> None:
        """Update `fences` for a damaged record: without its fence, all writes to the inode with a fence are refused."""
        if chunk.number == FENCE_CHUNK:
            self.fences[chunk.inode] = _ANY_FENCE

    def _update_fence(self, inode: int, record: Record | None) -> None:
        """A fence counts from when it is pending. Writes that were admitted before end before the raise returns. A lost
        one may have been any number: all writes with a fence are refused until it is raised again."""
        versions = () if record is None else (record.committed, record.pending)
        lengths = [v.length if not v.lost else _ANY_FENCE for v in versions if v is not None and not v.removed]
        if lengths:
            self.fences[inode] = max(lengths)
        else:
            self.fences.pop(inode, None)

    def corrected(self, chunk: ChunkId) -> Record | None:
        """The record before a bit of it was flipped, if that explains its damage."""
        data = self._get(chunk.key())
        return None if data is None else corrected(chunk, data)

    def rewrite_damaged(self, chunk: ChunkId) -> bool:
        """Write the cached record again if that in the table is damaged: it may be the only good one. Returns whether
        it was. Not durable at once. Raises Corrupt: it is not cached. Raises NoSpace, Unavailable."""
        if self.stored_record(chunk) is not None:
            return False
        self.write({chunk: self.get(chunk)})
        return True

    async def flush(self, number: int | None = None) -> None:
        try:
            await self._table.flush(number)
        except Corrupt as error:  # reads go on, and nobody knows what the table has on the disk
            self.on_failure(error)
            raise

    async def room_to_open(self) -> int:
        """The bytes that must be free for the table to be opened again, with the log that it has."""
        return await self._table.room_to_open()

    async def shorten_log(self) -> None:
        """Write the content of a long log to sorted files while there is room for that: on a full disk the table could
        not be opened again. Raises NoSpace, Unavailable."""
        await self._table.shorten_log()

    async def reopen(self) -> None:
        """Take writes again after a full disk. Raises NoSpace, Unavailable, Corrupt."""
        await self._table.reopen()
        if self._unsaved_notes:
            notes = dict(self._unsaved_notes)
            await self._table.flush(self._table.write(self._with_generation(notes)))
            self._note_saved(notes)

    async def close(self) -> None:
        await self._table.close()

    def rows(self, begin: bytes, end: bytes) -> Iterator[tuple[ChunkId, bytes]]:
        """Encoded records with begin <= key < end, in key order."""
        while True:
            pairs = self._scan(begin, end, _PAGE)
            for key, value in pairs:
                yield ChunkId.of_key(key), value
            if len(pairs) < _PAGE:
                return
            begin = pairs[-1][0] + b"\0"

    async def all_rows(self) -> AsyncIterator[tuple[ChunkId, bytes]]:
        """All encoded records in key order. Nobody may write meanwhile. A store may have millions, so others have their
        turns between them."""
        for number, row in enumerate(self.rows(b"", AFTER_ALL_CHUNKS), 1):
            yield row
            if number % _PAGE == 0:
                await asyncio.sleep(0)

    def scan(self, begin: bytes, end: bytes) -> Iterator[tuple[ChunkId, Record]]:
        """In key order. Raises Corrupt at a damaged record."""
        for chunk, data in self.rows(begin, end):
            yield chunk, decode(chunk, data)

    def last(self, begin: bytes, end: bytes) -> tuple[ChunkId, Record] | None:
        """The highest existing chunk with begin <= key < end."""
        while True:
            pairs = self._scan(begin, end, _LAST_PAGE, reverse=True)
            for key, value in pairs:
                chunk = ChunkId.of_key(key)
                record = decode(chunk, value)
                if live_version(record):
                    return chunk, record
            if len(pairs) < _LAST_PAGE:
                return None
            end = pairs[-1][0]

    def unreadable(self, inode: int) -> list[ChunkId]:
        """Chunks of an inode whose records are damaged."""
        rows = self.rows(ChunkId(inode, 0).key(), ChunkId(inode, FENCE_CHUNK).key() + b"\0")
        return [chunk for chunk, data in rows if _readable(chunk, data) is None]

    def inventory(self, after: ChunkId | None, limit: int) -> list[tuple[ChunkId, Record | None]]:
        """All records after that chunk in key order, with tombstones and pending versions; None for a damaged one."""
        begin = b"" if after is None else after.key() + b"\0"
        return [(chunk, _readable(chunk, data)) for chunk, data in islice(self.rows(begin, AFTER_ALL_CHUNKS), limit)]

    def _write(self, rows: dict[bytes, bytes | None], *, counts: bool = False) -> int:
        """A table that takes no more writes is reported whatever was written: after a full disk it has to be opened
        again even if clients write nothing."""
        try:
            if counts:
                rows[_GENERATION_KEY] = self._generation.next_row()
            elif not self._generation.is_kept:
                rows[_GENERATION_KEY] = self._generation.row()
            number = self._table.write(rows)
            self._generation.on_written(counts=counts)
            return number
        except Corrupt as error:  # the table met damage while sorting
            self.on_failure(error)
            raise
        except ThreefsError:
            if self._table.failure is not None:
                self.on_failure(self._table.failure)
            raise

    def _get(self, key: bytes) -> bytes | None:
        try:
            return self._table.get(key)
        except ThreefsError:
            self._report_failure()
            raise

    def _scan(self, begin: bytes, end: bytes, limit: int, reverse: bool = False) -> list[Pair]:
        try:
            return self._table.scan(begin, end, limit, reverse)
        except ThreefsError:
            self._report_failure()
            raise

    def _report_failure(self) -> None:
        failure = self._table.failure
        if failure is not None and not isinstance(failure, NoSpace):
            self.on_failure(failure)

    def _cache(self, chunk: ChunkId, record: Record | None) -> None:
        if len(self._young) >= self._half:
            self._old = self._young
            self._young = {}
        self._young[chunk] = record


def _readable(chunk: ChunkId, data: bytes) -> Record | None:
    try:
        return decode(chunk, data)
    except Corrupt:
        return None


def base_version(chunk: ChunkId, record: Record) -> Version | None:
    """The version whose bytes a change may keep. A raise names the whole fence, so it keeps nothing of a lost one."""
    version = live_version(record)
    return None if chunk.number == FENCE_CHUNK and version is not None and version.lost else version


def _is_lost(record: Record) -> bool:
    return any(version is not None and version.lost for version in (record.committed, record.pending))


def live_version(record: Record | None) -> Version | None:
    """The committed version, if there is one and the chunk is not removed."""
    if record is None or record.committed is None or record.committed.removed:
        return None
    return record.committed
