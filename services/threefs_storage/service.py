"""The methods of the storage service."""

import asyncio
import traceback
from collections.abc import Callable, Sequence
from functools import partial

import structlog

from threefs.background import BackgroundTasks
from threefs.cluster.applied_configuration import AppliedConfiguration
from threefs.cluster.routing_watcher import RoutingWatcher
from threefs.configuration import Role
from threefs.env.buffers import BufferPool
from threefs.env.clock import CLOCK, Clock
from threefs.env.net import Buffer
from threefs.env.random import RANDOM, Random
from threefs.errors import (
    Corrupt,
    DiskFailed,
    InProgress,
    Internal,
    InvalidArgument,
    LimitExceeded,
    NoSpace,
    NotServing,
    Overloaded,
    ResultForgotten,
    ThreefsError,
    TooFewReplicas,
    Unavailable,
)
from threefs.ids import ChunkId
from threefs.routing import Routing
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.methods import (
    FETCH_CHUNK,
    FORWARD_STAGED,
    INSPECT_CHUNK,
    INVENTORY,
    LAST_CHUNK,
    LIST_CHUNKS,
    QUERY_VERSION,
    READ,
    SCAN_CHUNKS,
    SPACE_INFO,
    STAGE_AHEAD,
    START_SCRUB,
    SYNC_DONE,
    WRITE,
)
from threefs.rpc.server import Server
from threefs.rpc.server_connection import Call
from threefs.rpc.traffic_class import TrafficClass
from threefs.telemetry.tracing import Tracing
from threefs.wire import storage_pb2 as pb
from threefs_storage.chain import admission
from threefs_storage.chain.copies import Copies
from threefs_storage.chain.fold_scheduler import FoldScheduler
from threefs_storage.chain.pending_recovery import PendingRecovery
from threefs_storage.chain.reads import MAX_ROWS, Reads
from threefs_storage.chain.resync import Resync, inventory
from threefs_storage.chain.successor import Successor
from threefs_storage.chain.tombstone_collector import TombstoneCollector
from threefs_storage.chain.traced import parts_of
from threefs_storage.chain.version_query import VersionQuery
from threefs_storage.chunk_inspection import inspect_chunk
from threefs_storage.chunk_listing import scan_chunks
from threefs_storage.engine.chunk_record import Record
from threefs_storage.engine.exactly_once import MAX_ENTRIES
from threefs_storage.health.chunk_repair import Repair
from threefs_storage.health.peer_room import PeerRoom, PeerRoomQuery, refusal, too_few
from threefs_storage.health.replica_comparison import Comparison
from threefs_storage.health.scrubber import Scrubber
from threefs_storage.health.target_recovery import TargetRecovery
from threefs_storage.scheduling.background_pace import Foreground, PaceLimits
from threefs_storage.scheduling.background_scheduler import BackgroundScheduler, Work, no_foreground
from threefs_storage.scheduling.space_release import SpaceRelease
from threefs_storage.target import Target
from threefs_storage.targets import Targets

_MAX_WRITES = 1024
_MAX_IN_FLIGHT = 32_768  # writes of batches, of all clients
_MAX_LISTED = 4096
_REFRESH_S = 0.5
_IN_PROGRESS = pb.ChunkWriteResult(code=InProgress.code, message="the write goes on")
_REMOVAL_PAUSE_S = 0.1
_LOG = structlog.get_logger()


class Storage:
    """Serves the targets of one process."""

    def __init__(
        self,
        targets: Targets,
        cluster: RoutingWatcher,
        peers: ConnectionPool,
        pool: BufferPool,
        *,
        clock: Clock = CLOCK,
        random: Random = RANDOM,
        report: Callable[[], None] = lambda: None,
        foreground: Callable[[], Foreground] = no_foreground,
        configuration: AppliedConfiguration | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        """`report` sends a heartbeat at once, after a change of the targets. Background work keeps to the pace of the
        configuration while `foreground` says that clients are served."""
        values = configuration or AppliedConfiguration(Role.STORAGE, {})
        parts = parts_of(tracing)
        self.trace = parts.events(clock=clock)
        self._targets = targets
        self._cluster = cluster
        self._clock = clock

        others = parts.peer_targets(peers, lambda: cluster.routing, clock=clock)
        self.reachability = others.reachability
        self.reachability.on_reached = report
        successor = Successor(others, clock=clock, pool=pool)
        self._craq = parts.craq(successor, self.trace, clock=clock, random=random)
        self._reads = Reads(targets, self._craq, VersionQuery(others, clock=clock), pool, clock)
        self._early_staging = parts.early_staging(self._craq, successor, self.trace, clock=clock)
        self._pending_recovery = PendingRecovery(self._craq, self._early_staging, clock)
        self._copies = Copies(others, pool=pool)
        self.scheduler = BackgroundScheduler(
            foreground, pace_of(values), clock=clock, rates={Work.SCRUB: values.integer("scrub_bytes_per_s")}
        )
        self._repair = Repair(self._craq, self._copies, self.scheduler, clock=clock)
        self._resync = Resync(self._craq, self._repair, others, self.scheduler, clock=clock)
        self._tombstone_collector = TombstoneCollector(self._craq, clock=clock)
        self.fold_scheduler = FoldScheduler(self._craq, values.number("fold_interval_s"), self.scheduler, clock=clock)
        self.scrubber = Scrubber(
            values.number("scrub_interval_s"), Comparison(others, clock=clock), self.scheduler, clock=clock
        )
        self._space_release = SpaceRelease(clock=clock)
        self._target_recovery = TargetRecovery(targets, clock=clock, report=report, on_return=self._restart_chain_tasks)
        self._room = PeerRoomQuery(others, clock=clock)
        self._report = report
        self._in_flight = 0
        self._started: set[int] = set()  # targets that have their tasks
        self._removing: set[int] = set()
        self._background = BackgroundTasks()

    def start(self, server: Server) -> None:
        """Serve, and finish the versions that a crash has left pending."""
        server.add(READ, self._reads.read)
        server.add(WRITE, self._write)
        server.add(STAGE_AHEAD, self._stage_ahead)
        server.add(FORWARD_STAGED, self._forward_staged)
        server.serve(QUERY_VERSION, self._query_version)
        server.add(LAST_CHUNK, self._last_chunk)
        server.add(LIST_CHUNKS, self._list_chunks)
        server.serve(SPACE_INFO, self._space_info)
        server.serve(INVENTORY, self._inventory)
        server.serve(SYNC_DONE, self._sync_done)
        server.add(FETCH_CHUNK, self._fetch_chunk)
        server.serve(SCAN_CHUNKS, self._scan_chunks)
        server.serve(INSPECT_CHUNK, self._inspect_chunk)
        server.serve(START_SCRUB, self._start_scrub)
        self._cluster.on_change(self._apply_routing)
        self._apply_routing(self._cluster.routing)
        self.scrubber.start(self._targets)
        self._tombstone_collector.start(self._targets)
        self._pending_recovery.start(self._targets)
        self.fold_scheduler.start(self._targets)
        self._space_release.start(self._targets)
        self._target_recovery.start()
        self.reachability.start()

    async def stop(self) -> None:
        await self._background.stop()
        await self.reachability.stop()
        await self._target_recovery.stop()
        await self._room.stop()
        await self.scrubber.stop()
        await self._tombstone_collector.stop()
        await self.fold_scheduler.stop()
        await self._space_release.stop()
        await self._repair.stop()
        await self._resync.stop()
        await self._pending_recovery.stop()

    def _apply_routing(self, routing: Routing) -> None:
        self._reads.routing_version = routing.version
        changed = self._targets.apply_routing(routing)
        added = [target for target in self._targets if target.target_id not in self._started]
        for target in added:
            self._started.add(target.target_id)
            target.report = self._report
            self._repair.start(target)
        for target in (*added, *changed):
            if target.target_id not in self._removing:
                self._restart_chain_tasks(target)
        for target in [target for target in self._targets if target.state is None]:
            self._remove(target)
        if added or changed:
            self._report()  # only a target that knows the newest version of its chain gets a lease

    def _remove(self, target: Target) -> None:
        """Its chain does not have this target any more."""
        if target.target_id not in self._removing:
            self._removing.add(target.target_id)
            self._background.attempt(f"removal of target {target.target_id}", self._close_removed(target))

    async def _close_removed(self, target: Target) -> None:
        """A routing that still names the target says that a move has taken it out for good: it is deleted. A manager
        that was restored from a backup of before it was made does not know it at all, and proves nothing."""
        await self._repair.end(target)
        await self._pending_recovery.end(target)
        while len(target.locks):  # calls that are under way find out that they have no lease
            await self._clock.sleep(_REMOVAL_PAUSE_S)
        named = self._cluster.routing.targets.get(target.target_id)
        if named is not None and named.chain_id == target.chain.chain_id:
            await self._targets.delete(target)
        else:
            await self._targets.set_aside(target)
        self._started.discard(target.target_id)
        self._removing.discard(target.target_id)
        self._report()

    def _restart_chain_tasks(self, target: Target) -> None:
        self._pending_recovery.restart(target)
        self._resync.restart(target)

    # ---- writes

    async def _write(self, call: Call[pb.WriteRequest, pb.WriteReply]) -> None:
        writes = call.request.writes
        if len(writes) > _MAX_WRITES:
            raise LimitExceeded(f"{len(writes)} writes in one request; {_MAX_WRITES} are the most")
        parts = _split_payload(writes, call.payload)
        if call.traffic is TrafficClass.BACKGROUND:
            async with self.scheduler.turn(Work.FOR_PEERS, len(call.payload), call.remaining_s() / 2):
                await self._write_all(call, parts)
        elif len(writes) == 1 and not call.request.answer_after_ms:
            self._answer_writes(call, [await self._write_one(call, writes[0], parts[0])])
        else:
            await self._write_all(call, parts)

    def _answer_writes(self, call: Call[pb.WriteRequest, pb.WriteReply], results: list[pb.ChunkWriteResult]) -> None:
        call.reply(pb.WriteReply(results=results, routing_version=self._cluster.routing.version))

    async def _write_all(self, call: Call[pb.WriteRequest, pb.WriteReply], parts: list[memoryview]) -> None:
        """Do the writes, and answer when all have ended, or earlier without those that are slow. All of them end before
        the payload's buffer is given back, also when the call is cancelled or answered (I14)."""
        count = len(parts)
        if self._in_flight + count > _MAX_IN_FLIGHT:
            raise Overloaded(
                f"{self._in_flight} writes of batches are in flight, {count} more exceed {_MAX_IN_FLIGHT}: try again"
            )
        self._in_flight += count
        try:
            async with asyncio.TaskGroup() as group:
                rows = [
                    group.create_task(self._write_one(call, write, part))
                    for write, part in zip(call.request.writes, parts, strict=True)
                ]
                if rows and call.request.answer_after_ms:
                    _, slow = await asyncio.wait(rows, timeout=call.request.answer_after_ms / 1000)
                    if slow:
                        self._answer_writes(call, [_IN_PROGRESS if row in slow else row.result() for row in rows])
        finally:
            self._in_flight -= count
        if not call.answered:
            self._answer_writes(call, [row.result() for row in rows])

    async def _write_one(
        self, call: Call[pb.WriteRequest, pb.WriteReply], write: pb.ChunkWrite, payload: Buffer
    ) -> pb.ChunkWriteResult:
        try:
            target = self._targets.get(write.target)
        except NotServing as error:
            return pb.ChunkWriteResult(code=error.code, message=error.message)
        try:
            if write.chain_version > target.chain.version:
                await self._cluster.refresh(self._cluster.routing.version, _REFRESH_S)
            done = await self._craq.write(target, write, payload, call.deadline)
            return pb.ChunkWriteResult(version=done.version, length=done.length, checksum=done.checksum)
        except ThreefsError as error:
            self._note_full(write, error)
            if isinstance(error, NoSpace):
                error = await self._no_space(target, write, error)
            if isinstance(error, TooFewReplicas):
                error = too_few(target, await self._room.absences(target, write.chunk_bytes))
            if isinstance(error, DiskFailed):  # a client reads this, and the error names a file of this machine
                shown = self._cluster.routing.shown_target(target.target_id)
                error = DiskFailed(f"the disk of {shown} failed; `threefs status` says how")
            version = error.version if isinstance(error, ResultForgotten) else 0
            return pb.ChunkWriteResult(code=error.code, message=error.message, version=version)
        except Exception as error:
            _LOG.error("a write failed unexpectedly", error="".join(traceback.format_exception(error)))
            return pb.ChunkWriteResult(code=Internal.code, message=f"the write failed: {type(error).__name__}")

    async def _stage_ahead(self, call: Call[pb.StageAheadRequest, pb.StageAheadReply]) -> None:
        write = call.request.write
        _split_payload([write], call.payload)
        try:
            await self._early_staging.stage(self._targets.get(write.target), write, call.payload, call.deadline)
        except ThreefsError as error:
            self._note_full(write, error)
            raise
        call.reply(pb.StageAheadReply())

    async def _forward_staged(self, call: Call[pb.ForwardStagedRequest, pb.ChunkWriteResult]) -> None:
        request = call.request
        target = self._targets.get(request.target)
        if request.chain_version > target.chain.version:
            await self._cluster.refresh(self._cluster.routing.version, _REFRESH_S)
        done = await self._early_staging.take_forward(target, request, call.deadline)
        call.reply(pb.ChunkWriteResult(version=done.version, length=done.length, checksum=done.checksum))

    def _note_full(self, write: pb.ChunkWrite, error: ThreefsError) -> None:
        """A target without room for the write of a predecessor leaves its chain, so that the others can go on."""
        target = self._targets.by_id.get(write.target)
        if target is None or target.leaving:
            return
        if target.engine.failure is not None or (write.version and isinstance(error, NoSpace)):
            self._target_recovery.on_no_space(target)

    async def _no_space(self, target: Target, write: pb.ChunkWrite, error: NoSpace) -> ThreefsError:
        """The error for a write that found no room. A full head gives way to a replica that has room."""
        if write.version and not target.leaving:
            return error  # the predecessor waits until this target has left the chain
        found = PeerRoom.TAKES_OVER if target.leaving else await self._room.ask(target, write.chunk_bytes)
        if found is PeerRoom.TAKES_OVER:
            self._target_recovery.on_no_space(target)
        return refusal(target, found, self._room.nodes(target))

    # ---- queries

    async def _query_version(self, request: pb.QueryVersionRequest) -> pb.QueryVersionReply:
        if len(request.inode) != len(request.index) or len(request.index) > MAX_ROWS:
            raise InvalidArgument(f"a version query has two columns of at most {MAX_ROWS} rows")
        target = self._at_last(request.target, request.chain_version)
        versions = []
        for inode, index in zip(request.inode, request.index, strict=True):
            chunk = ChunkId(inode, index)
            record = _record_for_query(target, chunk)
            unfinished = target.has_full_pending(chunk) and chunk not in target.current_pending
            if unfinished and target.serving:  # at a syncing target such a version is void (R5)
                await self._craq.finish_pending(target, chunk, self._clock.monotonic() + _REFRESH_S)
                self._at_last(request.target, request.chain_version)
                record = target.engine.record(chunk)
            versions.append(_committed_for_query(target, record))
        return pb.QueryVersionReply(version=versions)

    async def _last_chunk(self, call: Call[pb.LastChunkRequest, pb.LastChunkReply]) -> None:
        request = call.request
        target = await self._tail_without_pending(
            request.target, request.chain_version, request.inode, call.remaining_s
        )
        last = target.read_list(request.inode, lambda: target.engine.last_chunk(request.inode))
        if last is None:
            call.reply(pb.LastChunkReply())
            return
        chunk, record = last
        assert record.committed is not None
        call.reply(pb.LastChunkReply(found=True, index=chunk.number, length=record.committed.length))

    async def _list_chunks(self, call: Call[pb.ListChunksRequest, pb.ListChunksReply]) -> None:
        request = call.request
        target = await self._tail_without_pending(
            request.target, request.chain_version, request.inode, call.remaining_s
        )
        limit = min(request.limit or _MAX_LISTED, _MAX_LISTED)
        found = target.read_list(
            request.inode, lambda: target.engine.chunks(request.inode, request.first_index, limit + 1)
        )
        listed = [(chunk.number, record.committed) for chunk, record in found[:limit] if record.committed is not None]
        call.reply(
            pb.ListChunksReply(
                index=[number for number, _ in listed],
                length=[committed.length for _, committed in listed],
                version=[committed.version for _, committed in listed],
                checksum=[committed.checksum for _, committed in listed],
                more=len(found) > limit,
            )
        )

    async def _inventory(self, request: pb.InventoryRequest) -> pb.InventoryReply:
        target = self._syncing(request.target, request.chain_version)
        return inventory(target, ChunkId(request.inode, request.index) if request.behind else None, request.limit)

    async def _sync_done(self, request: pb.SyncDoneRequest) -> pb.SyncDoneReply:
        target = self._syncing(request.target, request.chain_version)
        if not target.drop_all_outdated():
            raise Unavailable("a pending version of an older chain version cannot be dropped yet: try again")
        target.logical_time.observe(request.stamp)
        target.synced_in_version = request.chain_version
        self._report()
        return pb.SyncDoneReply()

    async def _fetch_chunk(self, call: Call[pb.FetchChunkRequest, pb.FetchChunkReply]) -> None:
        target = self._targets.get(call.request.target)
        if call.request.record_only:
            await self._copies.serve(call, target)
        else:
            async with self.scheduler.turn(Work.FOR_PEERS, call.request.length, call.remaining_s() / 2):
                await self._copies.serve(call, target)

    async def _scan_chunks(self, request: pb.ScanChunksRequest) -> pb.ScanChunksReply:
        target = self._targets.get(request.target)
        if not request.any_state:
            admission.check(target, request.chain_version)
        after = ChunkId(request.inode, request.index) if request.behind else None
        return scan_chunks(target, after, request.limit, removed=request.removed)

    async def _inspect_chunk(self, request: pb.InspectChunkRequest) -> pb.InspectChunkReply:
        chunk = ChunkId(request.inode, request.index)
        return inspect_chunk(self._targets.get(request.target), chunk, self.trace.of(chunk), self._clock.monotonic())

    async def _start_scrub(self, request: pb.StartScrubRequest) -> pb.StartScrubReply:
        return pb.StartScrubReply(began=self.scrubber.start_pass())

    def _syncing(self, target_id: int, chain_version: int) -> Target:
        target = self._targets.get(target_id)
        admission.check(target, chain_version, syncing=True)
        if target.serving:
            raise NotServing(f"target {target_id} is not syncing")
        return target

    async def _tail_without_pending(
        self, target_id: int, chain_version: int, inode: int, remaining_s: Callable[[], float]
    ) -> Target:
        """The tail, after it has finished the pending versions of this inode that another target may have committed:
        those of an older chain version, and all if a syncing target is behind it, which may serve at any moment."""
        target = self._at_tail(target_id, chain_version)
        pending = [chunk for chunk in target.engine.pending_chunks if chunk.inode == inode]
        for chunk in [chunk for chunk in pending if target.has_full_pending(chunk)]:
            if not target.is_last or chunk not in target.current_pending:
                await self._craq.finish_pending(target, chunk, self._clock.monotonic() + remaining_s())
                self._at_tail(target_id, chain_version)
        return target

    def _at_last(self, target_id: int, chain_version: int) -> Target:
        target = self._targets.get(target_id)
        admission.check(target, chain_version, syncing=True)
        admission.check_last(target)
        return target

    def _at_tail(self, target_id: int, chain_version: int) -> Target:
        target = self._targets.get(target_id)
        admission.check(target, chain_version)
        admission.check_tail(target)
        return target

    async def _space_info(self, request: pb.SpaceInfoRequest) -> pb.SpaceInfoReply:
        reply = pb.SpaceInfoReply()
        for target in self._targets:
            space = target.engine.space()
            reply.targets.add(
                target=target.target_id,
                capacity_bytes=space.capacity_bytes,
                used_bytes=space.used_bytes,
                free_bytes=space.free_bytes,
                chunks=space.chunks,
                room_bytes=target.engine.room_bytes,
            )
        return reply


def _committed_for_query(target: Target, record: Record | None) -> int:
    """The committed version; 0 if there is none. At a syncing target one of an older chain version says nothing of
    what the chain has: it may be of a history that the resync replaces, under the number of another version."""
    committed = record.committed if record is not None else None
    if committed is None or not (target.serving or committed.chain_version == target.chain.version):
        return 0
    return committed.version


def _record_for_query(target: Target, chunk: ChunkId) -> Record | None:
    """The record, for a version query. Raises Unavailable if it is damaged; a syncing target gets another one soon."""
    if target.serving:
        return target.read_list(chunk.inode, partial(target.engine.record, chunk))
    try:
        return target.engine.record(chunk)
    except Corrupt as error:
        raise Unavailable(f"the record is damaged and will be replaced by resync, try again: {error.message}") from None


def pace_of(values: AppliedConfiguration) -> PaceLimits:
    return PaceLimits(values.integer("background_bytes_per_s"), values.number("background_share"))


def _split_payload(writes: Sequence[pb.ChunkWrite], payload: memoryview) -> list[memoryview]:
    """Each write's share of the payload. Raises InvalidArgument."""
    parts, place = [], 0
    for write in writes:
        if len(write.entries) > MAX_ENTRIES:
            raise InvalidArgument(f"a write with {len(write.entries)} results; {MAX_ENTRIES} are the most")
        size = write.length if write.kind in (pb.WRITE, pb.REPLACE) and not write.lost else 0
        parts.append(payload[place : place + size])
        place += size
    if place != len(payload):
        raise InvalidArgument(f"the writes announce {place} bytes of payload, and {len(payload)} came")
    return parts
