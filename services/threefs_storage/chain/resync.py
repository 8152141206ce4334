"""Bringing a syncing successor up to date, while writes go on.

The last serving target takes its successor's inventory, then looks at its own, both in key order, and ships every chunk
that differs as a whole, under its lock. Writes of meanwhile reach the successor as whole chunks too (R4). A run belongs
to one chain version: any change of the chain ends it, and the next one begins anew, which is cheap where chunks are
equal already. Nothing that a run meets is fatal: what fails is tried again. What cannot be read here is repaired, and
if no member of the chain has it, shipped as lost: a damaged chunk does not keep a chain from having all its replicas.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass

import structlog

from threefs.background import BackgroundTasks, cancel_and_wait
from threefs.backoff import Backoff
from threefs.budget import ByteBudget
from threefs.env.clock import Clock
from threefs.errors import Corrupt, CorruptChunk, ThreefsError
from threefs.ids import ChunkId, TargetId
from threefs.routing import PublicState
from threefs.rpc.methods import INVENTORY, SYNC_DONE
from threefs.wire import storage_pb2 as pb
from threefs_storage.chain.craq import Craq
from threefs_storage.engine.records import Record, digest
from threefs_storage.health.repair import Outcome, Repair
from threefs_storage.peer_targets import PeerTargets
from threefs_storage.target import Target

MOST_ROWS = 2048
_IN_FLIGHT_CHUNKS = 8  # chunks on their way ...
IN_FLIGHT_BYTES = (
    32 << 20
)  # ... of all targets of the process: there is room for as much of what clients write meanwhile
_CALL_S = 5.0
_SHIP_S = 20.0
_BACKOFF = Backoff(0.05, 1.0)
#: A pass that ends with something missing is followed by another one. More than so many get nothing done.
_PASSES = 3

_LOG = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Row:
    """The committed state of a chunk; version 0: there is none, or it cannot be read."""

    chunk: ChunkId
    version: int
    checksum: int
    digest: int


class Resync:
    """One task per target that has a syncing successor."""

    def __init__(self, craq: Craq, repair: Repair, peers: PeerTargets, *, clock: Clock) -> None:
        self._craq = craq
        self._repair = repair
        self._peers = peers
        self._clock = clock
        self._background = BackgroundTasks()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._budget = ByteBudget(IN_FLIGHT_BYTES)

    def restart(self, target: Target) -> None:
        """To be called with every new version of the target's chain."""
        before = self._tasks.pop(target.target_id, None)
        if before is not None:
            before.cancel()
        target.resync_counts = (0, 0)
        successor = target.chain.successor(target.target_id) if target.is_tail else None
        if successor is not None and successor.state is PublicState.SYNCING:
            run = self._run(target, successor.target_id, target.chain.version)
            self._tasks[target.target_id] = self._background.run(f"resync of target {target.target_id}", run)

    async def stop(self) -> None:
        await self._background.stop()

    async def _run(self, target: Target, successor: TargetId, chain_version: int) -> None:
        passes = 0
        while target.chain.version == chain_version:
            passes += 1
            try:
                if await self._run_pass(target, successor, chain_version, passes <= _PASSES):
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

    async def _run_pass(self, target: Target, successor: TargetId, chain_version: int, progress: bool) -> bool:
        """One pass, which counts as progress or not; whether nothing is missing any more."""
        shipping: dict[asyncio.Task[bool], None] = {}
        complete = True
        looked_at = 0
        try:
            async for theirs in self._pages(target, successor, chain_version):
                for chunk, row in theirs:
                    looked_at += 1
                    target.sync_progress += progress
                    target.resync_counts = (looked_at, max(looked_at, target.engine.space().chunks))
                    if row is not None and row == _own(target, chunk):
                        continue
                    while len(shipping) >= _IN_FLIGHT_CHUNKS:
                        done, _ = await asyncio.wait(shipping, return_when=asyncio.FIRST_COMPLETED)
                        for task in [task for task in shipping if task in done]:
                            del shipping[task]
                            complete &= task.result()
                    shipping[asyncio.create_task(self._send(target, chunk, chain_version))] = None
            results = await asyncio.gather(*shipping)
            return complete and all(results)
        finally:
            await cancel_and_wait(*shipping)

    async def _send(self, target: Target, chunk: ChunkId, chain_version: int) -> bool:
        size = _size(target, chunk)
        await self._budget.take(size)
        try:
            return await self._send_or_repair(target, chunk, chain_version)
        finally:
            self._budget.give(size)

    async def _send_or_repair(self, target: Target, chunk: ChunkId, chain_version: int) -> bool:
        try:
            try:
                await self._craq.send_chunk(target, chunk, chain_version, self._clock.monotonic() + _SHIP_S)
            except (CorruptChunk, Corrupt):
                target.note_damage(chunk)
                if await self._repair.repair(target, chunk) is Outcome.LATER:
                    raise
                await self._craq.send_chunk(target, chunk, chain_version, self._clock.monotonic() + _SHIP_S)
            return True
        except ThreefsError as error:
            _LOG.info("a chunk cannot be shipped now", target=target.target_id, chunk=chunk, error=str(error))
            return False

    async def _pages(
        self, target: Target, successor: TargetId, chain_version: int
    ) -> AsyncIterator[list[tuple[ChunkId, Row | None]]]:
        """All chunks of both, in key order, with what the successor has (None: nothing).

        The successor's rows of a page are taken first, then ours: what is written between the two is equal there.
        """
        after: ChunkId | None = None
        more = True
        while more:
            request = pb.InventoryRequest(target=successor, chain_version=chain_version, limit=MOST_ROWS)
            if after is not None:
                request.behind, request.inode, request.index = True, after.inode, after.number
            reply = await self._peers.call(successor, INVENTORY, request, timeout_s=_CALL_S)
            theirs = {row.chunk: row for row in _rows(reply)}
            more = reply.more
            last = max(theirs) if more else None
            for page in _merged(target, after, last, theirs):
                yield page
            after = last


def inventory(target: Target, after: ChunkId | None, limit: int) -> pb.InventoryReply:
    """The answer of a syncing target."""
    limit = min(limit or MOST_ROWS, MOST_ROWS)
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


def row_of(chunk: ChunkId, record: Record | None) -> Row:
    if record is None or record.committed is None:
        return Row(chunk, 0, 0, 0)
    return Row(chunk, record.committed.version, record.committed.checksum, digest(record))


def _size(target: Target, chunk: ChunkId) -> int:
    """Bytes that are shipped, as far as they are known before its lock is held."""
    try:
        record = target.engine.record(chunk)
    except ThreefsError:
        return 0
    versions = (record.pending, record.committed) if record is not None else ()
    return max((version.length for version in versions if version is not None), default=0)


def _rows(reply: pb.InventoryReply) -> list[Row]:
    columns = zip(reply.inode, reply.index, reply.version, reply.checksum, reply.digest, strict=True)
    return [Row(ChunkId(inode, index), version, crc, rest) for inode, index, version, crc, rest in columns]


def _own(target: Target, chunk: ChunkId) -> Row | None:
    """What is committed here; None if it is being changed, or cannot be read: then only its lock tells what is so."""
    if chunk in target.locks or chunk in target.engine.pending_chunks:
        return None
    try:
        record = target.engine.record(chunk)
    except ThreefsError:
        return None
    return None if record is None else row_of(chunk, record)


def _merged(
    target: Target, after: ChunkId | None, last: ChunkId | None, theirs: Mapping[ChunkId, Row]
) -> Iterator[list[tuple[ChunkId, Row | None]]]:
    """Chunks known here or there, behind `after` up to and with `last` (None: to the end), page by page."""
    full = True
    while full:
        ours = [chunk for chunk, _ in target.inventory(after, MOST_ROWS)]
        full = len(ours) == MOST_ROWS and (last is None or ours[-1] < last)
        end = ours[-1] if full else last
        chunks = {chunk for chunk in ours if end is None or chunk <= end}
        chunks |= {chunk for chunk in theirs if (after is None or chunk > after) and (end is None or chunk <= end)}
        yield [(chunk, theirs.get(chunk)) for chunk in sorted(chunks)]
        after = end
