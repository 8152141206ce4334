"""Batched reads: the hot path of the service, and apportioned queries.

A batch whose rows are all clean and in memory is answered in the step of the event loop in which it came, without a
task or a thread. If a row has to wait, for the disk or for the version query of a pending version, a task answers the
batch.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import structlog

from threefs.env.buffers import BufferPool
from threefs.env.clock import Clock
from threefs.errors import (
    ChainChanged,
    ChunkLost,
    ChunkNotFound,
    Corrupt,
    CorruptChunk,
    DeadlineExceeded,
    DiskFailed,
    InvalidArgument,
    LimitExceeded,
    NoSpace,
    NotServing,
    ThreefsError,
    Unavailable,
)
from threefs.ids import ChunkId
from threefs.rpc.server_connection import Call
from threefs.wire import storage_pb2 as pb
from threefs_storage.chain import admission
from threefs_storage.chain.craq import Craq
from threefs_storage.chain.version_query import VersionQuery
from threefs_storage.engine.chunk_record import Version
from threefs_storage.target import Target
from threefs_storage.targets import Targets

MAX_ROWS = 4096
MAX_BYTES = 64 << 20
#: Rows and bytes that are read in one step of the event loop: some milliseconds of work. Few requests are larger.
TURN_ROWS = 1024
TURN_BYTES = 16 << 20
#: Rows of a batch that wait for the disk or for another process at a time.
PARALLEL = 64

_OK = 0
_NOT_SERVING = NotServing.code
_CHAIN_CHANGED = ChainChanged.code
_NOT_FOUND = ChunkNotFound.code
_LOG = structlog.get_logger()

#: The result of a row: error code, length, checksum, version.
RowResult = tuple[int, int, int, int]


class Reads:
    """Answers Read."""

    def __init__(self, targets: Targets, craq: Craq, last: VersionQuery, pool: BufferPool, clock: Clock) -> None:
        self._targets = targets
        self._craq = craq
        self._version_query = last
        self._pool = pool
        self._clock = clock
        self.routing_version = 0

    def read(self, call: Call[pb.ReadRequest, pb.ReadReply]) -> "asyncio.Future[None] | None":
        request = call.request
        offsets, lengths = list(request.offset), list(request.length)
        count = len(lengths)
        columns = (request.target, request.chain_version, request.inode, request.index, offsets)
        if any(len(column) != count for column in columns):
            raise InvalidArgument(f"the columns of a read differ in length: {[count, *map(len, columns)]}")
        total = sum(lengths)
        if count > MAX_ROWS or total > MAX_BYTES:
            raise LimitExceeded(f"a read of {count} rows and {total} bytes; {MAX_ROWS} and {MAX_BYTES} are the most")
        call.make_room(total)
        buffer = self._pool.take(total)
        rows: list[RowResult] = []
        waiting: list[int] = []
        asked = zip(*columns, lengths, strict=True)
        short = count <= TURN_ROWS and total <= TURN_BYTES
        try:
            self._read_some(asked if short else islice(asked, _turn(lengths, 0)), buffer, 0, rows, waiting)
        except BaseException:
            self._pool.give(buffer)
            raise
        if short and not waiting:
            self._answer(call, rows, lengths, buffer)
            return None
        task = asyncio.ensure_future(self._answer_later(call, asked, rows, waiting, lengths, buffer))
        task.add_done_callback(lambda done: self._return_buffer(done, buffer))
        return task

    def _read_some(
        self, asked: Iterable[Sequence[int]], buffer: memoryview, place: int, rows: list[RowResult], waiting: list[int]
    ) -> int:
        """Read rows into the buffer from `place` on, and note those that have to wait. Returns the place of the
        next."""
        by_id = self._targets.by_id
        now = self._clock.monotonic()
        for target_id, chain_version, inode, index, offset, length in asked:
            row: RowResult | None
            target = by_id.get(target_id)
            if target is None or not target.serving or target.leased_until <= now:  # R2: in the step of the look-up
                row = (_NOT_SERVING, 0, 0, 0)
            elif target.chain.version != chain_version:
                row = (_CHAIN_CHANGED, 0, 0, 0)
            else:
                row = _read_now(target, ChunkId(inode, index), offset, buffer[place : place + length])
                if row is None:
                    waiting.append(len(rows))
                    row = (_OK, 0, 0, 0)
            rows.append(row)
            place += length
        return place

    def _return_buffer(self, task: "asyncio.Future[None]", buffer: memoryview) -> None:
        """Give the buffer back if there was no answer. The task cannot do so: it may be cancelled before it starts."""
        if task.cancelled() or task.exception() is not None:
            self._pool.give(buffer)

    def _answer(
        self,
        call: Call[pb.ReadRequest, pb.ReadReply],
        rows: Sequence[RowResult],
        lengths: Sequence[int],
        buffer: memoryview,
    ) -> None:
        assert len(rows) == len(lengths), "every row has a result"
        codes, got, checksums, versions = zip(*rows, strict=True) if rows else ((), (), (), ())
        reply = pb.ReadReply(
            code=codes, length=got, checksum=checksums, version=versions, routing_version=self.routing_version
        )
        payload: list[memoryview]
        if list(got) == lengths:
            payload = [buffer[: sum(lengths)]]
        else:
            payload, place = [], 0
            for have, asked in zip(got, lengths, strict=True):
                if have:
                    payload.append(buffer[place : place + have])
                place += asked
        call.reply(reply, payload, lambda: self._pool.give(buffer))

    async def _answer_later(
        self,
        call: Call[pb.ReadRequest, pb.ReadReply],
        asked: Iterator[Sequence[int]],
        rows: list[RowResult],
        waiting: list[int],
        lengths: Sequence[int],
        buffer: memoryview,
    ) -> None:
        """Read the rest of a batch that is too long for one step, then the rows that have to wait, in parallel."""
        place = sum(lengths[: len(rows)])
        while len(rows) < len(lengths):
            await asyncio.sleep(0)
            place = self._read_some(islice(asked, _turn(lengths, len(rows))), buffer, place, rows, waiting)
        places = [0]
        for length in lengths:
            places.append(places[-1] + length)
        assert places[-1] == place, "each row has its own place in the buffer of a batch"
        request = call.request
        left = iter(waiting)

        async def read_some() -> None:
            for i in left:
                rows[i] = await self._read_row(
                    request.target[i],
                    request.chain_version[i],
                    ChunkId(request.inode[i], request.index[i]),
                    request.offset[i],
                    buffer[places[i] : places[i + 1]],
                    call.deadline,
                )

        reading = (read_some() for _ in range(min(len(waiting), PARALLEL)))
        # A cancelled batch waits for all of them, too: threads may be filling the buffer (I14).
        for error in await asyncio.gather(*reading, return_exceptions=True):
            if error is not None:
                raise error
        self._answer(call, rows, lengths, buffer)

    async def _read_row(
        self, target_id: int, chain_version: int, chunk: ChunkId, offset: int, into: memoryview, deadline: float
    ) -> RowResult:
        target = self._targets.by_id.get(target_id)
        if target is None:  # closed while the row waited for its turn
            return (_NOT_SERVING, 0, 0, 0)
        try:
            version = await self._committed(target, chain_version, chunk, deadline)
            if version is None or version.removed:
                return (_NOT_FOUND, 0, 0, 0)
            if version.lost and not version.has_bytes:
                raise ChunkLost
            length = min(len(into), version.length - offset)
            if length <= 0:
                return (_OK, 0, 0, version.version)
            checksum = target.engine.read(version, offset, into[:length])
            if checksum is None:
                checksum = await target.engine.read_cold(version, offset, into[:length])
            return (_OK, length, checksum, version.version)
        except ThreefsError as error:
            return _failed(target, chunk, error)

    async def _committed(self, target: Target, chain_version: int, chunk: ChunkId, deadline: float) -> Version | None:
        """The version that a read must return, in the step in which it was looked up (R2). A replica with a pending
        version asks the last target, because another replica may have shown the pending version already (R1)."""
        while True:
            admission.check(target, chain_version)
            record = target.engine.record(chunk)
            if record is None or record.pending is None or chunk in target.early:  # P10
                return record.committed if record is not None else None
            if chunk not in target.current_pending:
                await self._craq.finish_pending(target, chunk, deadline)
                continue
            if target.is_last:
                return record.committed
            if self._clock.monotonic() >= deadline:
                raise DeadlineExceeded
            asked = await self._version_query.committed_version(target, chunk, deadline)
            admission.check(target, chain_version)
            record = target.engine.record(chunk)
            if record is None:
                return None
            if asked <= (record.committed.version if record.committed is not None else 0):
                return record.committed
            if record.pending is not None and record.pending.version == asked:
                return record.pending


def _turn(lengths: Sequence[int], start: int) -> int:
    """How many rows from `start` on are read in one step."""
    total = 0
    for number in range(start, min(start + TURN_ROWS, len(lengths))):
        total += lengths[number]
        if total >= TURN_BYTES:
            return number + 1 - start
    return TURN_ROWS


def _read_now(target: Target, chunk: ChunkId, offset: int, into: memoryview) -> RowResult | None:
    """The result of a row; None if it has to wait."""
    try:
        record = target.engine.record(chunk)
        if record is None:
            return (_NOT_FOUND, 0, 0, 0)
        version = record.committed
        if record.pending is not None and chunk not in target.early:  # P10
            return None
        if version is None or version.removed:
            return (_NOT_FOUND, 0, 0, 0)
        length = version.length - offset
        if length < len(into):
            if version.lost and not version.has_bytes:
                raise ChunkLost
            if length <= 0:
                return (_OK, 0, 0, version.version)
            into = into[:length]
        checksum = target.engine.read(version, offset, into)
    except ThreefsError as error:
        return _failed(target, chunk, error)
    return None if checksum is None else (_OK, len(into), checksum, version.version)


def _failed(target: Target, chunk: ChunkId, error: ThreefsError) -> RowResult:
    """The result of a row that failed: the client asks another replica. Damage is noted for repair and logged once per
    chunk, also a single place that the disk cannot read."""
    if isinstance(error, CorruptChunk | Corrupt | DiskFailed) and target.note_damage(chunk):
        _LOG.warning("a chunk is damaged", target=target.target_id, chunk=chunk, error=error.message)
    if isinstance(error, NoSpace):  # to finish a pending version: the disk gets room soon, or others go on without it
        return (Unavailable.code, 0, 0, 0)
    return (error.code, 0, 0, 0)
