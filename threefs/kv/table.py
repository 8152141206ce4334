"""An ordered table of bytes in one directory: a thin layer over rocksdict that works around its traps.

Reads and writes are synchronous and quick. A write is durable only after `flush`. Concurrent flushes share one sync of
the log, in a worker thread, or on the event loop while syncs are fast (`sync_policy`). Writes reach the disk in their
order. So after a crash the table has all writes up to some write, which is at least the last one that was flushed.

After an I/O error the table refuses all work, because the content of the disk is not known any more. After a full disk
it refuses writes until it is opened again; `reopen` does so in place. It refuses writes also where RocksDB has met
damage while it merged sorted files: it takes none then, and merges again as soon as it is opened with `merges`.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from rocksdict import Rdict, RdictIter, WriteBatch

from threefs.env.clock import CLOCK, Clock
from threefs.env.sync_policy import SyncPolicy
from threefs.env.worker_threads import ThreadWorker, Worker
from threefs.errors import Corrupt, NoSpace, ThreefsError, Unavailable
from threefs.kv import scans
from threefs.kv.engine_api import Pair
from threefs.kv.rocksdb_store import (
    LONG_LOG_BYTES,
    check_room,
    error_of,
    is_log_long,
    merge_at_once,
    needed_bytes,
    open_store,
)
from threefs.kv.wal_preallocation import WalPreallocator
from threefs.kv.wal_recovery import MARK_KEY, encode_mark

T = TypeVar("T")

#: In errors, which clients read: the directory is nothing to them.
_NAME = "the table of this service"
_SEEKS = 8
_MISSES = 8  # absent keys of a `get_many`, after which it looks keys up one by one
_MARK_WITHIN_S = 0.002


class Table:
    """Use `await Table.open(directory)`. Only one process can have a table open."""

    def __init__(
        self,
        store: Rdict,
        worker: Worker,
        directory: Path,
        sync_policy: SyncPolicy | None = None,
        clock: Clock = CLOCK,
        only_copy: bool = False,
    ) -> None:
        self.written = 0  # number of the newest write
        self.durable = 0  # number of the newest write that survives a crash
        self.durable_change = store.latest_sequence_number()  # number of the newest change that does, in the log
        self.failure: ThreefsError | None = None
        self._store = store
        self._worker = worker
        self._directory = directory
        self._sync_policy = sync_policy  # None: all syncs are in the thread
        self._preallocator = None if sync_policy is None else WalPreallocator(directory)
        self._clock = clock
        self._only_copy = only_copy
        self._waiting: list[asyncio.Future[None]] = []
        self._flusher: asyncio.Task[None] | None = None
        self._turn: asyncio.Handle | None = None  # runs at the end of a step of the loop that has done its sync
        self._crowded = False  # several flushes came in one step: later ones wait for its end, and share
        self._mark: bytes | None = None  # is written with the next write
        self._marking: asyncio.Handle | None = None  # writes the mark if no write comes
        self._merges_at_once = False
        self._needed_bytes, self._measured_at = 0, -1  # for the log, and the write behind which it was looked at
        self._sequence: int | None = None  # number of the last change, while the store is being opened again

    @classmethod
    async def open(
        cls,
        directory: Path,
        *,
        sync_policy: SyncPolicy | None = None,
        clock: Clock = CLOCK,
        only_copy: bool = False,
        merges: bool = True,
    ) -> "Table":
        """Open the table: make its directory if it is missing, and recover. With a `sync_policy`, syncs may be on the
        event loop. If nobody else has what the `only_copy` has, old logs stay for backups for a while, and what the
        disk cannot read of a sorted file is damage to what lies there. `merges`: as of `open_store`.

        Raises Unavailable (in use, unreadable), Corrupt, NoSpace.
        """
        worker = ThreadWorker("threefs-table")
        try:
            opening = partial(open_store, directory, keep_logs=only_copy, merges=merges)
            store = await _run(worker, opening, f"the table {directory}")
            return cls(store, worker, directory, sync_policy, clock, only_copy)
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
        """The table as it is now; later writes do not change the view. A view keeps old files, so it should be
        short-lived."""
        self._check_readable()
        return TableView(self, self._checked(self._store.iter))

    def write(self, changes: Mapping[bytes, bytes | None]) -> int:
        """Apply all changes as one write (None removes the key). Returns the number of the write, for `flush`.

        Raises NoSpace, Corrupt or Unavailable; then nothing was changed.
        """
        if self.failure is not None:
            raise type(self.failure)(self.failure.message)
        assert MARK_KEY not in changes, "no row has the key of the mark"
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
        try:
            self._store.write(batch)
        except Exception as error:
            raise self._fail(error) from error
        if self._preallocator is not None:
            self._preallocator.used(size_bytes)
        self.written += 1
        return self.written

    async def flush(self, number: int | None = None) -> None:
        """Return when the write of that number, and all before it, are durable; by default all so far. Raises NoSpace,
        Corrupt, Unavailable."""
        if (self.written if number is None else number) <= self.durable:
            return
        if self.failure is not None:
            raise type(self.failure)(self.failure.message)
        if self._flusher is None and self._sync_policy is not None and self._sync_policy.on_loop:
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

    async def sync(self) -> None:
        """Return when everything that the table shows now is durable, marks included. A backup needs this: otherwise
        another change could get a number that the backup has seen, after a crash. Raises NoSpace, Unavailable."""
        await self.flush()
        sequence = self.change
        try:
            await self._worker.run(self._store.flush_wal, True)
        except Exception as error:
            raise self._fail(error) from error
        self.durable_change = max(self.durable_change, sequence)

    async def room_to_open(self) -> int:
        """The bytes that must be free for the table to be opened again, with the log that it has. Raises
        Unavailable."""
        if self._measured_at != self.written:
            self._measured_at = self.written
            try:
                self._needed_bytes = await self._worker.run(needed_bytes, self._directory)
            except OSError as error:  # a write will find out what is wrong with the disk
                raise Unavailable(f"the log of {_NAME} cannot be looked at: {error.strerror}") from error
        return self._needed_bytes

    async def shorten_log(self, long_bytes: int = LONG_LOG_BYTES) -> None:
        """Write what only the log has to a sorted file, if it is so much and there is room for it. To open the table
        again takes that room. Raises NoSpace, Unavailable."""
        if self.failure is not None:
            raise type(self.failure)(self.failure.message)
        self._measured_at = -1
        if not await _run(self._worker, partial(is_log_long, self._directory, long_bytes)):
            return
        try:
            await self._worker.run(self._store.flush)
        except Exception as error:
            raise self._fail(error) from error

    async def merge_at_once(self, at_once: bool) -> None:
        """Whether what was removed makes room as soon as it is in a sorted file. Raises NoSpace, Unavailable; the table
        works on then."""
        if at_once != self._merges_at_once:
            try:
                await self._worker.run(merge_at_once, self._store, at_once)
            except Exception as error:
                raise error_of(error, _NAME) from error
            self._merges_at_once = at_once

    async def _wait(self) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        await done

    @property
    def directory(self) -> Path:
        return self._directory

    @property
    def change(self) -> int:
        """The number of the newest change, durable or not."""
        if self._sequence is not None:
            return self._sequence
        return self._checked(lambda: int(self._store.latest_sequence_number()))

    async def reopen(self) -> None:
        """After a full disk: take writes again if there is room now. All earlier writes are there, and durable. No view
        may be held. Nothing can be read until this returns.

        Raises NoSpace: try again later. Raises Unavailable, and Corrupt if an earlier write is lost. Then the table has
        failed; with an earlier write lost it can be opened anew, as after a crash.
        """
        assert isinstance(self.failure, NoSpace), "only a table that has met a full disk is opened again in place"
        if self._flusher is not None:
            await asyncio.wait([self._flusher])
        if self._sequence is None:
            await _run(self._worker, partial(check_room, self._directory))
            self._sequence = self._store.latest_sequence_number()
            with contextlib.suppress(Exception):  # it raises its error again, and releases the directory
                await self._worker.run(self._store.close)
        # Recovery reads the log, and writes its content to a sorted file, durably.
        store = await _run(self._worker, partial(open_store, self._directory))
        found = store.latest_sequence_number()
        if found != self._sequence:
            await self._worker.run(store.close)
            self.failure = Corrupt(f"{_NAME} had {self._sequence} changes before the disk was full, but {found} now")
            raise self.failure
        self._store = store
        self._merges_at_once = False
        self._measured_at = -1
        self._sequence = None
        self._mark = encode_mark(found)
        self.durable_change = found
        self.durable = self.written
        self.failure = None

    async def close(self) -> None:
        """Make everything durable and release the directory."""
        if self._sequence is not None:  # the store is closed already
            await self._worker.close()
            return
        try:
            if self.failure is None:
                await self.flush()
                if self._turn is not None:  # it must not run after the store is closed
                    self._turn.cancel()
                    self._end_turn()
                self._write_mark()
        finally:
            try:
                await self._worker.run(self._store.close)
            except Exception as error:
                if self.failure is None:  # else the owner knows, and the store raises the same error again
                    raise self._fail(error) from error
            finally:
                await self._worker.close()

    def _end_turn(self) -> None:
        """The step of the loop is over: all flushes that came in it and still wait share a sync."""
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
            self._mark_later()

    def _mark_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._marking = loop.call_later(_MARK_WITHIN_S, self._mark_unless_busy, self.durable)

    def _mark_unless_busy(self, durable: int) -> None:
        """While flushes follow each other, no mark is written alone: each write carries the mark of the flush
        before."""
        if self.durable == durable:
            self._write_mark()
        else:
            self._mark_later()

    def _sync_here(self) -> None:
        number = self.written
        try:
            sequence = self._store.latest_sequence_number()
            self._timed_sync()
        except Exception as error:
            raise self._fail(error) from error
        self._flushed(number, sequence)

    def _timed_sync(self) -> None:
        began = self._clock.monotonic()
        self._store.flush_wal(True)
        if self._sync_policy is not None:
            self._sync_policy.record(self._clock.monotonic() - began)

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
        self.durable_change = max(self.durable_change, sequence)
        self._mark = encode_mark(sequence)

    def _write_mark(self) -> None:
        """Write the mark of the last flush now, because the next write may be far away. Without a mark behind them,
        damaged records of that flush would look like a torn end."""
        if self._marking is not None:
            self._marking.cancel()
            self._marking = None
        if self._mark is None or self.failure is not None:
            return
        batch = WriteBatch(raw_mode=True)
        batch.put(MARK_KEY, self._mark)
        self._mark = None
        try:
            self._store.write(batch)
        except Exception as error:  # the next write fails with the same error
            self._fail(error)

    def _check_readable(self) -> None:
        closed = self._sequence is not None
        if closed and isinstance(self.failure, NoSpace):
            raise Unavailable(f"{_NAME} is being opened again")
        if self.failure is not None and (closed or not isinstance(self.failure, NoSpace | Corrupt)):
            raise type(self.failure)(self.failure.message)

    def _checked(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except Exception as error:
            raise self._fail(error, reading=True) from error

    def _fail(self, error: Exception, *, reading: bool = False) -> ThreefsError:
        """The error to raise. The table refuses all work, or writes, from now on, unless it was `reading` a corrupt
        record."""
        failure = error_of(error, _NAME, only_copy=self._only_copy)
        if self.failure is None and not (reading and isinstance(failure, Corrupt)):
            self.failure = failure
        return failure


async def _run(worker: Worker, work: Callable[[], T], name: str = _NAME) -> T:
    """The result of `work` on the files of a table. Raises what it raises, and for errors of the system those of
    threefs."""
    try:
        return await worker.run(work)
    except ThreefsError:
        raise
    except OSError as error:
        raise error_of(error, name) from error


class TableView:
    """The table at one moment. A snapshot of rocksdict cannot be used: its iterators ignore the snapshot.

    The view is an iterator that was made at that moment. But an iterator that seeks an absent key steps over all
    removed rows behind it, which may be thousands of names. So while nothing has been written since, the view reads
    from the table itself.
    """

    def __init__(self, table: Table, rows: RdictIter) -> None:
        self._table = table
        self._rows = rows
        self._written = table.written

    def get(self, key: bytes) -> bytes | None:
        table = self._table
        if table.failure is not None or table._sequence is not None:
            table._check_readable()
        rows = self._rows
        found: bytes | None
        try:
            if table.written == self._written:
                found = table._store.get(key)
                return found
            rows.seek(key)
            at = rows.key()
            if at is None:  # the table ends before the key, or the iterator has met an error
                rows.status()
            found = rows.value() if at == key else None
        except Exception as error:
            raise table._fail(error, reading=True) from error
        return found

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._table._check_readable()
        rows = self._rows
        # Methods are bound once, because a call may read thousands of records.
        seek, step, key_at, value_at = rows.seek, rows.next, rows.key, rows.value
        found: list[bytes | None] = []
        seeks = _SEEKS  # left, before a step is tried in any case
        following = -1  # last byte of the next key, if keys are consecutive numbers
        patience = _MISSES if self._table.written == self._written else len(keys)
        try:
            for key in keys:
                if not patience:
                    found.append(self._table._store.get(key))
                    continue
                end = key[-1] if key else 0
                if end == following or not seeks:
                    # Callers often ask for keys in key order, and a step is six times as fast as a seek.
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
                if at == key:
                    found.append(value_at())
                else:
                    found.append(None)
                    patience -= 1
                following = end + 1
                if at is None:
                    rows.status()
                    seeks, following = _SEEKS, -1  # a step of an iterator at its end is fatal
        except Exception as error:
            raise self._table._fail(error, reading=True) from error
        return found

    def scan(self, begin: bytes, end: bytes, limit: int = 0, reverse: bool = False) -> list[Pair]:
        """Pairs with begin <= key < end in key order (or reversed); limit 0 means all."""
        self._table._check_readable()
        return self._table._checked(lambda: self._scan(begin, end, limit, reverse))

    def _scan(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> list[Pair]:
        if self._table.written != self._written:
            return (scans.backward if reverse else scans.forward)(self._rows, begin, end, limit)
        return scans.scan(self._table._store, begin, end, limit, reverse=reverse)
