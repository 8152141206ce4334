"""Resync: the tail brings its syncing successor up to date while writes go on.

The tail reads the successor's inventory, then its own, both in key order, and sends every chunk that differs as a
whole, under the lock of the chunk. Writes reach the successor as whole chunks, too (R4). A run belongs to one chain
version: any change of the chain ends it, and the next run starts again, which is cheap where chunks are already equal.
A successor with little room gets all removals first: it would leave again at the first chunk that finds none.
No failure is final: a failed step is tried again. A chunk that is damaged here is repaired from other members; if no
member has it, it is sent as lost, so that one damaged chunk does not keep a chain from having all its replicas.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass

import structlog

from threefs.background import BackgroundTasks, cancel_and_wait
from threefs.backoff import Backoff
from threefs.byte_budget import ByteBudget
from threefs.env.clock import Clock
from threefs.errors import Corrupt, CorruptChunk, DeadlineExceeded, ThreefsError
from threefs.ids import ChunkId, TargetId
from threefs.paging import next_place
from threefs.routing import PublicState
from threefs.rpc.methods import INVENTORY, SYNC_DONE
from threefs.rpc.traffic_class import TrafficClass
from threefs.transfer_time import transfer_s
from threefs.wire import storage_pb2 as pb
from threefs_storage.chain.craq import Craq
from threefs_storage.engine.chunk_record import Record, digest
from threefs_storage.engine.record_store import live_version
from threefs_storage.health.chunk_repair import Outcome, Repair
from threefs_storage.health.peer_room import room_bytes_of
from threefs_storage.peer_targets import PeerTargets
from threefs_storage.scheduling.background_scheduler import BackgroundScheduler, Work
from threefs_storage.target import Target

MAX_ROWS = 2048
_IN_FLIGHT_CHUNKS = 8  # of one target
#: Of all targets of the process: half of the budget for whole chunks in flight, so that clients' writes have room, too.
IN_FLIGHT_BYTES = 32 << 20
_CALL_S = 5.0
_SEND_S = 20.0  # of a chunk, and the time of all that is sent beside it
_BACKOFF = Backoff(0.05, 1.0)
#: A pass that leaves a difference is followed by another one. Later passes than these count as progress only if the one
#: before has sent what the successor lacked.
_PASSES = 3
_LITTLE_ROOM_BYTES = 64 << 20

_LOG = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class InventoryRow:
    """The committed state of a chunk; version 0 if there is none, or if the record is damaged."""

    chunk: ChunkId
    version: int
    checksum: int
    digest: int


@dataclass(slots=True)
class _Pass:
    is_progress: bool
    has_room: bool = True  # at the successor, as far as it has said
    sent: int = 0  # chunks that the successor lacked

    def on_sent(self, task: asyncio.Task[bool]) -> None:
        if not task.cancelled() and task.exception() is None:
            self.sent += task.result()


class Resync:
    """One task per target that has a syncing successor."""

    def __init__(
        self, craq: Craq, repair: Repair, peers: PeerTargets, scheduler: BackgroundScheduler, *, clock: Clock
    ) -> None:
        self._craq = craq
        self._repair = repair
        self._peers = peers
        self._scheduler = scheduler
        self._clock = clock
        self._background = BackgroundTasks()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._budget = ByteBudget(IN_FLIGHT_BYTES)

    def restart(self, target: Target) -> None:
        """Start the run that this version of the target's chain needs, if it needs one."""
        before = self._tasks.pop(target.target_id, None)
        if before is not None:
            before.cancel()
        target.resync_counts = (0, 0)
        successor = target.successor if target.is_tail else None
        if successor is not None and successor.state is PublicState.SYNCING:
            run = self._run(target, successor.target_id, target.chain.version)
            self._tasks[target.target_id] = self._background.run(f"resync of target {target.target_id}", run)

    async def stop(self) -> None:
        await self._background.stop()

    async def _run(self, target: Target, successor: TargetId, chain_version: int) -> None:
        assert successor != target.target_id, "a target is brought up to date by another one"
        passes, current = 0, _Pass(is_progress=True)
        while target.chain.version == chain_version:
            passes += 1
            current = _Pass(passes <= _PASSES or current.sent > 0, current.has_room)
            try:
                if await self._run_pass(target, successor, chain_version, current):
                    request = pb.SyncDoneRequest(
                        target=successor, chain_version=chain_version, stamp=target.logical_time.now
                    )
                    await self._peers.call(successor, SYNC_DONE, request, timeout_s=_CALL_S)
                    _LOG.info("successor is up to date", target=target.target_id, successor=successor)
                    return
            except ThreefsError as error:
                _LOG.info("resync is interrupted", target=target.target_id, successor=successor, error=str(error))
            except Exception:
                _LOG.exception("resync failed", target=target.target_id, successor=successor)
            await self._clock.sleep(_BACKOFF.limit_s(passes - 1))

    async def _run_pass(self, target: Target, successor: TargetId, chain_version: int, current: _Pass) -> bool:
        """Compare all chunks and send those that differ. True if the successor has everything at the end."""
        with contextlib.suppress(DeadlineExceeded):  # on a slow link the question waits behind the pass before
            room_bytes = await room_bytes_of(self._peers, successor, TrafficClass.BACKGROUND)
            current.has_room = room_bytes >= _LITTLE_ROOM_BYTES
        if not current.has_room and not await self._send_different(
            target, successor, chain_version, current, removed_only=True
        ):
            return False
        return await self._send_different(target, successor, chain_version, current)

    async def _send_different(
        self, target: Target, successor: TargetId, chain_version: int, current: _Pass, *, removed_only: bool = False
    ) -> bool:
        """Compare all chunks, or those that are removed here, and send those that differ. False if one was not sent."""
        sending: dict[asyncio.Task[bool], None] = {}
        complete = True
        compared = 0
        try:
            async for theirs in self._pages(target, successor, chain_version):
                for chunk, row in theirs:
                    compared += 1
                    target.sync_progress += current.is_progress
                    target.resync_counts = (compared, max(compared, target.engine.space().chunks))
                    own = _own_row(target, chunk)
                    if (row is not None and row == own) or (removed_only and _is_live(target, chunk)):
                        continue
                    while len(sending) >= _IN_FLIGHT_CHUNKS:
                        done, _ = await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
                        for task in [task for task in sending if task in done]:
                            del sending[task]
                            complete &= task.result()
                    task = asyncio.create_task(self._send(target, chunk, chain_version, current))
                    sending[task] = None
                    if own is not None:  # else it is being changed, and goes there in any case
                        task.add_done_callback(current.on_sent)
            results = await asyncio.gather(*sending)
            return complete and all(results)
        finally:
            await cancel_and_wait(*sending)

    async def _send(self, target: Target, chunk: ChunkId, chain_version: int, current: _Pass) -> bool:
        size = target.length_of(chunk)  # without the lock of the chunk this is an estimate
        await self._budget.take(size)
        try:
            async with self._scheduler.turn(Work.RESYNC, size):
                is_sent = await self._send_or_repair(target, chunk, chain_version)
            target.sync_progress += is_sent and current.is_progress  # the last ones take a while on a busy disk
            return is_sent
        finally:
            self._budget.give(size)

    async def _send_or_repair(self, target: Target, chunk: ChunkId, chain_version: int) -> bool:
        send_s = _SEND_S + transfer_s(self._budget.used_bytes)
        try:
            if chunk in target.engine.lost_chunks:  # the successor may have an older version that helps
                await self._repair.repair(target, chunk)
            try:
                await self._craq.send_chunk(target, chunk, chain_version, self._clock.monotonic() + send_s)
            except (CorruptChunk, Corrupt):
                target.note_damage(chunk)
                if await self._repair.repair(target, chunk) is Outcome.LATER:
                    raise
                await self._craq.send_chunk(target, chunk, chain_version, self._clock.monotonic() + send_s)
            return True
        except ThreefsError as error:
            _LOG.info("a chunk cannot be sent now", target=target.target_id, chunk=chunk, error=str(error))
            return False

    async def _pages(
        self, target: Target, successor: TargetId, chain_version: int
    ) -> AsyncIterator[list[tuple[ChunkId, InventoryRow | None]]]:
        """All chunks of both targets in key order, with the row of the successor (None if it has no record).

        For each page the successor's rows are read before ours: a write between the two readings has reached both.
        """
        after: ChunkId | None = None
        more = True
        while more:
            request = pb.InventoryRequest(target=successor, chain_version=chain_version, limit=MAX_ROWS)
            if after is not None:
                request.behind, request.inode, request.index = True, after.inode, after.number
            reply = await self._peers.call(successor, INVENTORY, request, timeout_s=_CALL_S)
            theirs = {row.chunk: row for row in _rows(reply)}
            more = reply.more
            last = next_place(f"chunks of target {successor}", after, max(theirs, default=None)) if more else None
            for page in _merged_pages(target, after, last, theirs):
                yield page
            after = last


def inventory(target: Target, after: ChunkId | None, limit: int) -> pb.InventoryReply:
    """One page of the inventory of a syncing target."""
    limit = min(limit or MAX_ROWS, MAX_ROWS)
    found = target.inventory(after, limit + 1)
    rows = [row_of(chunk, record) for chunk, record in found[:limit]]
    return pb.InventoryReply(
        inode=[row.chunk.inode for row in rows],
        index=[row.chunk.number for row in rows],
        version=[row.version for row in rows],
        checksum=[row.checksum for row in rows],
        digest=[row.digest for row in rows],
        more=len(found) > limit,
    )


def row_of(chunk: ChunkId, record: Record | None) -> InventoryRow:
    if record is None or record.committed is None:
        return InventoryRow(chunk, 0, 0, 0)
    return InventoryRow(chunk, record.committed.version, record.committed.checksum, digest(record))


def _rows(reply: pb.InventoryReply) -> list[InventoryRow]:
    columns = zip(reply.inode, reply.index, reply.version, reply.checksum, reply.digest, strict=True)
    return [InventoryRow(ChunkId(inode, index), version, crc, rest) for inode, index, version, crc, rest in columns]


def _own_row(target: Target, chunk: ChunkId) -> InventoryRow | None:
    """The row of a chunk here; None if the chunk is being changed or damaged, so that it has to be sent."""
    if chunk in target.locks or chunk in target.engine.pending_chunks:
        return None
    try:
        record = target.engine.record(chunk)
    except ThreefsError:
        return None
    return None if record is None else row_of(chunk, record)


def _is_live(target: Target, chunk: ChunkId) -> bool:
    """Whether the chunk needs room at the successor; it may be damaged."""
    try:
        return live_version(target.engine.record(chunk)) is not None or chunk in target.engine.pending_chunks
    except ThreefsError:
        return True


def _merged_pages(
    target: Target, after: ChunkId | None, last: ChunkId | None, theirs: Mapping[ChunkId, InventoryRow]
) -> Iterator[list[tuple[ChunkId, InventoryRow | None]]]:
    """Chunks of either target behind `after`, up to and including `last` (None: to the end), page by page."""
    full = True
    while full:
        ours = [chunk for chunk, _ in target.inventory(after, MAX_ROWS)]
        full = len(ours) == MAX_ROWS and (last is None or ours[-1] < last)
        end = ours[-1] if full else last
        assert not full or after is None or ours[-1] > after, "each page begins behind the one before"
        chunks = {chunk for chunk in ours if end is None or chunk <= end}
        chunks |= {chunk for chunk in theirs if (after is None or chunk > after) and (end is None or chunk <= end)}
        assert end is None or all(chunk <= end for chunk in chunks), "the next page begins behind this one"
        yield [(chunk, theirs.get(chunk)) for chunk in sorted(chunks)]
        after = end
