"""Group commit: one fdatasync per data file for a whole batch, then one write of all its records, then one WAL sync.

A record is written only when its data is durable, so no crash can leave a record that names missing bytes. Batches are
pipelined: while one waits for the WAL, the data of the next is being synced. A single commit on a quick disk does not
use the queue, because starting a task and waiting for it would cost as much as the sync.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from threefs.env.clock import CLOCK, Clock
from threefs.env.disk import File, Write
from threefs.errors import ThreefsError
from threefs.ids import ChunkId
from threefs.telemetry.histogram import Histogram
from threefs_storage.engine.chunk_record import Record
from threefs_storage.engine.content_plan import Check
from threefs_storage.engine.disk_work import DiskWork
from threefs_storage.engine.overlay import BlobKey
from threefs_storage.engine.record_store import RecordStore

_NO_BLOBS: Mapping[BlobKey, bytes] = {}


@dataclass(frozen=True, slots=True)
class _Item:
    chunk: ChunkId
    record: Record
    file: File | None
    writes: Sequence[Write]
    blobs: Mapping[BlobKey, bytes]
    check: Check | None
    counts: bool
    written: asyncio.Future[int]


class GroupCommit:
    def __init__(self, store: RecordStore, clock: Clock = CLOCK) -> None:
        self.durations = Histogram()  # of commits that have succeeded
        self.work = DiskWork()  # all that a change writes, also before its commit
        self._store = store
        self._clock = clock
        self._queue: list[_Item] = []
        self._task: asyncio.Task[None] | None = None
        self._arrivals = 0  # commits in this turn of the event loop
        self._was_concurrent = False  # the last turn had several

    async def commit(
        self,
        chunk: ChunkId,
        record: Record,
        file: File | None,
        writes: Sequence[Write],
        blobs: Mapping[BlobKey, bytes] = _NO_BLOBS,
        check: Check | None = None,
        counts: bool = True,
    ) -> None:
        """Do the writes, and make them and earlier writes to `file` durable, then the record with its new blobs. With
        `counts` that raises the generation of the store.

        After an error of the disk, or of `check`, the record was not written. After an error of the table it may have
        been.
        """
        began = self._clock.monotonic()
        with self.work:
            if self._is_alone() and (file is None or file.sync_now(writes)):
                if check is not None:
                    check()
                number = self._store.write({chunk: record}, blobs, counts=counts)
            else:
                written: asyncio.Future[int] = asyncio.get_running_loop().create_future()
                self._queue.append(_Item(chunk, record, file, writes, blobs, check, counts, written))
                if self._task is None:
                    self._task = asyncio.create_task(self._run())
                number = await written
            await self._store.flush(number)
        self.durations.observe(self._clock.monotonic() - began)

    def _is_alone(self) -> bool:
        """Whether this commit is the only one now. Call this once for each commit, because it counts them."""
        if not self._arrivals:
            asyncio.get_running_loop().call_soon(self._end_turn)
        self._arrivals += 1
        return self._arrivals == 1 and not self._was_concurrent and self._task is None

    def _end_turn(self) -> None:
        self._was_concurrent = self._arrivals > 1
        self._arrivals = 0

    async def _run(self) -> None:
        while self._queue:
            batch, self._queue = self._queue, []
            try:
                await self._commit(batch)
            except Exception as error:
                _fail(batch, error)
            assert all(item.written.done() for item in batch), "every commit of a batch has a result"
        self._task = None

    async def _commit(self, batch: list[_Item]) -> None:
        files: dict[int, list[_Item]] = {}
        for item in batch:
            if item.file is not None:
                files.setdefault(id(item.file), []).append(item)
        groups = list(files.values())
        if len(groups) == 1:  # saves a task
            failures = [await _sync(groups[0])]
        else:
            failures = await asyncio.gather(*map(_sync, groups))
        for items, failure in zip(groups, failures, strict=True):
            if failure is not None:
                _fail(items, failure)
        for item in batch:
            if item.check is not None and not item.written.done():
                _check(item, item.check)
        good = [item for item in batch if not item.written.done()]
        if good:
            blobs = {key: data for item in good for key, data in item.blobs.items()}
            counts = any(item.counts for item in good)
            number = self._store.write({item.chunk: item.record for item in good}, blobs, counts=counts)
            for item in good:
                item.written.set_result(number)


async def _sync(items: list[_Item]) -> Exception | None:
    file = items[0].file
    assert file is not None, "only writes to a file are synced"
    writes = [write for item in items for write in item.writes]
    try:
        if not file.sync_now(writes):
            await file.sync(writes)
    except Exception as error:
        return error
    return None


def _check(item: _Item, check: Check) -> None:
    try:
        check()
    except ThreefsError as error:
        item.written.set_exception(error)


def _fail(items: list[_Item], error: Exception) -> None:
    for item in items:
        if not item.written.done():
            item.written.set_exception(error)
