"""An ordered table of bytes in one directory: a thin layer over rocksdict that knows its traps.

Reads and writes are synchronous and quick; a write is durable only after `flush`. Concurrent flushes share one WAL
sync in one worker thread, or on the event loop while that is quick (`pace`). Writes reach the disk in their order, so
after a crash the table is as it was after some write, at least the last one that was flushed.

After an I/O error the table refuses everything: what the disk holds is no longer known. After a full disk it refuses
writes until it is opened again, which `reopen` does while it stays in use.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    RdictIter,
    WriteBatch,
)

from threefs.env.clock import CLOCK, Clock
from threefs.env.worker import ThreadWorker, Worker
from threefs.errors import Corrupt, NoSpace, ThreefsError, Unavailable
from threefs.kv.log_room import LogRoom
from threefs.kv.pace import Pace
from threefs.kv.port import Pair
from threefs.kv.wal import MARK_KEY, cut_torn_tails, encode_mark, flushed, gaps, put_aside, rotated, unreadable

T = TypeVar("T")

_BLOCK_CACHE_BYTES = 64 << 20
_WRITE_BUFFER_BYTES = 32 << 20
_LARGEST_WAL_BYTES = 256 << 20
_BLOOM_BITS_PER_KEY = 10
_SEEKS = 8
_ROOM_TO_OPEN_BYTES = 1 << 20  # beside what the logs hold
_MARK_WITHIN_S = 0.002


class Table:
    """Use `await Table.open(directory)`. One process at a time has a table open."""

    def __init__(
        self, store: Rdict, worker: Worker, directory: Path, pace: Pace | None = None, clock: Clock = CLOCK
    ) -> None:
        self.written = 0  # number of the newest write
        self.durable = 0  # number of the newest write that survives a crash
        self.failure: ThreefsError | None = None
        self._store = store
        self._worker = worker
        self._directory = directory
        self._pace = pace  # None: always in the thread
        self._room = None if pace is None else LogRoom(directory)
        self._clock = clock
        self._waiting: list[asyncio.Future[None]] = []
        self._flusher: asyncio.Task[None] | None = None
        self._turn: asyncio.Handle | None = None  # runs at the end of a turn of the loop that has had its sync
        self._crowded = False  # several came in one turn: the next ones wait for its end, and share
        self._mark: bytes | None = None  # for the next write
        self._marking: asyncio.Handle | None = None  # if none comes
        self._sequence: int | None = None  # of the last change, while the store is closed to be opened again

    @classmethod
    async def open(cls, directory: Path, *, pace: Pace | None = None, clock: Clock = CLOCK) -> "Table":
        """Create the directory if need be, and recover. With a `pace`, syncs may hold up the event loop.

        Raises Unavailable (in use, unreadable), Corrupt, NoSpace.
        """
        worker = ThreadWorker("threefs-table")
        try:
            return cls(await worker.run(_open, directory), worker, directory, pace, clock)
        except BaseException:
            await worker.close()
            raise

    def get(self, key: bytes) -> bytes | None:
        self._check_readable()
        return self._checked(lambda: self._store.get(key))

    def scan(self, begin: bytes, end: bytes, limit: int = 0, reverse: bool = False) -> list[Pair]:
        """Pairs with begin <= key < end in key order (or reversed); limit 0 means all."""
        return self.view().scan(begin, end, limit, reverse)

    def view(self) -> "TableView":
        """The table as it is now, whatever is written later. It holds on to old files, so it should not live long."""
        self._check_readable()
        return TableView(self, self._checked(self._store.iter))

    def write(self, changes: Mapping[bytes, bytes | None]) -> int:
        """Apply all of `changes` at once (None removes the key); the number of the write, for `flush`.

        Raises NoSpace or Unavailable; then nothing was changed.
        """
        if self.failure is not None:
            raise type(self.failure)(self.failure.message)
        assert MARK_KEY not in changes, "this key is taken"
        batch = WriteBatch(raw_mode=True)
        if self._mark is not None:
            batch.put(MARK_KEY, self._mark)
            self._mark = None
        for key, value in changes.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        size_bytes = batch.size_in_bytes()
        self._checked(lambda: self._store.write(batch))
        if self._room is not None:
            self._room.used(size_bytes)
        self.written += 1
        return self.written

    async def flush(self, number: int | None = None) -> None:
        """Return when the write of that number (by default all so far) is durable. Raises NoSpace or Unavailable."""
        if (self.written if number is None else number) <= self.durable:
            return
        if self.failure is not None:
            raise type(self.failure)(self.failure.message)
        if self._flusher is None and self._pace is not None and self._pace.on_loop:
            if self._turn is None:
                self._turn = asyncio.get_running_loop().call_soon(self._end_turn)
                if not self._crowded:
                    self._sync_here()
                    return
            await self._wait()
            return
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._flush_while_wanted())
        await self._wait()

    async def _wait(self) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        await done

    async def reopen(self) -> None:
        """After a full disk: take writes again, if there is room now, with all that was written before, and durable. No
        view may be held. Until then nothing can be read.

        Raises NoSpace: try again later. Raises Unavailable for good if something of before is not there any more.
        """
        assert isinstance(self.failure, NoSpace), "only a full disk can be waited for"
        if self._flusher is not None:
            await asyncio.wait([self._flusher])
        if self._sequence is None:
            await self._worker.run(_check_room, self._directory)
            self._sequence = self._store.latest_sequence_number()
            with contextlib.suppress(Exception):  # it repeats what made it fail, and lets go of the directory
                await self._worker.run(self._store.close)
        # Recovery reads the log, and writes what is in it to a sorted file, durably.
        store = await self._worker.run(_open, self._directory)
        found = store.latest_sequence_number()
        if found != self._sequence:
            await self._worker.run(store.close)
            self.failure = Unavailable(
                f"the table {self._directory} ended with change {self._sequence}, and after a full disk with {found}"
            )
            raise self.failure
        self._store = store
        self._sequence = None
        self._mark = encode_mark(found)
        self.durable = self.written
        self.failure = None

    async def close(self) -> None:
        """Make everything durable and release the directory."""
        if self._sequence is not None:  # it is closed already
            await self._worker.close()
            return
        try:
            if self.failure is None:
                await self.flush()
                if self._turn is not None:  # it must not find the store closed
                    self._turn.cancel()
                    self._end_turn()
                self._write_mark()
        finally:
            try:
                await self._worker.run(self._store.close)
            except Exception as error:
                if self.failure is None:  # else the owner has been told, and the store only repeats it
                    raise self._fail(error) from error
            finally:
                await self._worker.close()

    def _end_turn(self) -> None:
        """All calls that had come have been looked at: those that still wait share a sync."""
        self._turn = None
        self._crowded = len(self._waiting) > (1 if self._crowded else 0)
        if self._flusher is not None:
            return
        if self._waiting:
            try:
                self._sync_here()
            except ThreefsError as failure:
                self._refuse_waiting(failure)
            else:
                self._release(self._take_waiting())
        if self._marking is None:
            self._marking = asyncio.get_running_loop().call_later(_MARK_WITHIN_S, self._write_mark)

    def _sync_here(self) -> None:
        number, sequence = self.written, self._checked(self._store.latest_sequence_number)
        self._checked(self._timed_sync)
        self._flushed(number, sequence)

    def _timed_sync(self) -> None:
        began = self._clock.monotonic()
        self._store.flush_wal(True)
        if self._pace is not None:
            self._pace.took(self._clock.monotonic() - began)

    async def _flush_while_wanted(self) -> None:
        while self._waiting:
            waiting = self._take_waiting()
            number = self.written
            try:
                sequence = self._store.latest_sequence_number()
                await self._worker.run(self._timed_sync)
            except Exception as error:
                self._waiting = waiting + self._waiting
                self._refuse_waiting(self._fail(error))
                break
            self._flushed(number, sequence)
            self._release(waiting)
        self._flusher = None
        self._write_mark()

    def _take_waiting(self) -> list[asyncio.Future[None]]:
        waiting, self._waiting = self._waiting, []
        return waiting

    def _release(self, waiting: list[asyncio.Future[None]]) -> None:
        for done in waiting:
            if not done.done():
                done.set_result(None)

    def _refuse_waiting(self, failure: ThreefsError) -> None:
        for done in self._take_waiting():
            if not done.done():
                done.set_exception(type(failure)(failure.message))

    def _flushed(self, number: int, sequence: int) -> None:
        self.durable = number
        self._mark = encode_mark(sequence)

    def _write_mark(self) -> None:
        """No write may follow for long, and without a mark behind them the records of the last flush, if they are
        damaged, look like a torn end."""
        if self._marking is not None:
            self._marking.cancel()
            self._marking = None
        if self._mark is None or self.failure is not None:
            return
        batch = WriteBatch(raw_mode=True)
        batch.put(MARK_KEY, self._mark)
        self._mark = None
        with contextlib.suppress(ThreefsError):  # it is kept for whoever writes next
            self._checked(lambda: self._store.write(batch))

    def _check_readable(self) -> None:
        if self.failure is not None and not isinstance(self.failure, NoSpace):
            raise type(self.failure)(self.failure.message)
        if self._sequence is not None:
            raise Unavailable(f"the table {self._directory} is being opened again")

    def _checked(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except Exception as error:
            raise self._fail(error) from error

    def _fail(self, error: Exception) -> ThreefsError:
        """The error to raise; all but a corrupt record ends the use of the table, or its use for writing."""
        failure = _error_of(error, self._directory)
        if self.failure is None and not isinstance(failure, Corrupt):
            self.failure = failure
        return failure


class TableView:
    """The table at one moment. A snapshot of rocksdict would not do: its iterators ignore the snapshot."""

    def __init__(self, table: Table, rows: RdictIter) -> None:
        self._table = table
        self._rows = rows

    def get(self, key: bytes) -> bytes | None:
        if self._table.failure is not None or self._table._sequence is not None:
            self._table._check_readable()
        rows = self._rows
        try:
            rows.seek(key)
            at = rows.key()
            if at is None:  # there is no such key nor a later one, or the iterator has met an error
                rows.status()
            found: bytes | None = rows.value() if at == key else None
        except Exception as error:
            raise self._table._fail(error) from error
        return found

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._table._check_readable()
        rows = self._rows
        # Bound once: metadata reads thousands of records in a call.
        seek, step, key_at, value_at = rows.seek, rows.next, rows.key, rows.value
        found: list[bytes | None] = []
        seeks = _SEEKS  # until a step is tried in any case
        following = -1  # what the next key ends with if keys are numbers in a row
        try:
            for key in keys:
                end = key[-1] if key else 0
                if end == following or not seeks:
                    # Keys are often asked for in the order in which they lie, and a step is six times as quick.
                    step()
                    if key_at() == key:
                        found.append(value_at())
                        following = end + 1
                        continue
                    seeks = _SEEKS
                else:
                    seeks -= 1
                seek(key)
                at = key_at()
                found.append(value_at() if at == key else None)
                following = end + 1
                if at is None:
                    rows.status()
                    seeks, following = _SEEKS, -1  # there is nothing to step on from, and to try would be fatal
        except Exception as error:
            raise self._table._fail(error) from error
        return found

    def scan(self, begin: bytes, end: bytes, limit: int = 0, reverse: bool = False) -> list[Pair]:
        """Pairs with begin <= key < end in key order (or reversed); limit 0 means all."""
        self._table._check_readable()
        return self._table._checked(
            lambda: self._backward(begin, end, limit) if reverse else self._forward(begin, end, limit)
        )

    def _forward(self, begin: bytes, end: bytes, limit: int) -> list[Pair]:
        rows = self._rows
        pairs: list[Pair] = []
        rows.seek(begin)
        key: bytes | None
        while (key := rows.key()) is not None:
            if key >= end:
                return pairs
            if key != MARK_KEY:
                pairs.append((key, rows.value()))
                if len(pairs) == limit:
                    return pairs
            rows.next()
        rows.status()  # an iterator also ends when it meets a damaged block, and only this tells
        return pairs

    def _backward(self, begin: bytes, end: bytes, limit: int) -> list[Pair]:
        rows = self._rows
        pairs: list[Pair] = []
        rows.seek_for_prev(end)
        while rows.valid():
            key: bytes = rows.key()
            if key < begin:
                return pairs
            if key < end and key != MARK_KEY:
                pairs.append((key, rows.value()))
                if len(pairs) == limit:
                    return pairs
            rows.prev()
        rows.status()
        return pairs


def _open(directory: Path) -> Rdict:
    directory.mkdir(parents=True, exist_ok=True)
    parent = os.open(directory.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)
    if unreadable(directory) and not (cut_torn_tails(directory) and not unreadable(directory)):
        raise Corrupt(f"the table {directory} is damaged: its log has a record of no known kind")
    try:
        if rotated(directory):
            return _open_rotated(directory)
        return Rdict(str(directory), _options())
    except Exception as error:
        failure = error if isinstance(error, ThreefsError) else _error_of(error, directory)
        if not isinstance(failure, Corrupt) or rotated(directory) or not cut_torn_tails(directory):
            raise failure from error
    try:
        return Rdict(str(directory), _options())
    except Exception as error:
        raise _error_of(error, directory) from error


def _open_rotated(directory: Path) -> Rdict:
    """Take the logs in up to the first gap, if nothing that was flushed lies behind it."""
    needed = flushed(directory)
    cut_torn_tails(directory)
    for log, first in gaps(directory):
        found = _last_change_before(directory, log)
        if found + 1 >= first:
            continue  # sorted files have what the log before has lost
        if found < needed:
            raise Corrupt(f"the table {directory} is damaged: change {needed} was flushed, the logs end with {found}")
        put_aside(directory, log)
        break
    return Rdict(str(directory), _options())


def _last_change_before(directory: Path, log: Path) -> int:
    """Which change the table would end with if it had not this log nor later ones."""
    trial = directory / "trial"
    shutil.rmtree(trial, ignore_errors=True)
    trial.mkdir()
    for path in directory.iterdir():
        later = path.suffix == ".log" and int(path.stem) >= int(log.stem)
        if path.is_file() and path.name not in ("LOCK", "LOG") and not later:
            os.link(path, trial / path.name)
    try:
        store = Rdict(str(trial), _options(), access_type=AccessType.read_only())
        try:
            return store.latest_sequence_number()
        finally:
            store.close()
    finally:
        shutil.rmtree(trial)


def _check_room(directory: Path) -> None:
    """Raises NoSpace if what lies in the logs might find no room in sorted files."""
    logs = sum(log.stat().st_size for log in directory.glob("*.log"))
    status = os.statvfs(directory)
    if status.f_bavail * status.f_frsize < 2 * logs + _ROOM_TO_OPEN_BYTES:
        raise NoSpace(f"the disk of {directory} is full")


def _options() -> Options:
    blocks = BlockBasedOptions()
    blocks.set_block_cache(Cache(_BLOCK_CACHE_BYTES))
    blocks.set_bloom_filter(_BLOOM_BITS_PER_KEY, False)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(DBCompressionType.none())
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_max_total_wal_size(_LARGEST_WAL_BYTES)
    # A crash cuts the newest WAL anywhere. Damage before its end is an error, and never skipped.
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_paranoid_checks(True)
    options.set_keep_log_file_num(3)
    options.set_stats_dump_period_sec(0)
    return options


def _error_of(error: Exception, directory: Path) -> ThreefsError:
    text = str(error)
    if "No space left" in text:
        return NoSpace(f"the disk of {directory} is full; the table takes no more writes until it is opened again")
    if "Corruption" in text:
        return Corrupt(f"the table {directory} is damaged: {text}")
    if "lock" in text.lower() and "LOCK" in text:
        return Unavailable(f"the table {directory} is in use by another process")
    return Unavailable(f"the table {directory} failed and is closed to all: {text}")
