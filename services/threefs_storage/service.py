"""The methods of the storage service."""

from collections.abc import Callable
from functools import partial

import structlog

from threefs.background import BackgroundTasks
from threefs.cluster.applied_configuration import AppliedConfiguration
from threefs.cluster.routing_watcher import RoutingWatcher
from threefs.configuration import Role
from threefs.env.buffers import BufferPool
from threefs.env.clock import CLOCK, Clock
from threefs.env.random import RANDOM, Random
from threefs.errors import (
    Corrupt,
    InvalidArgument,
    NoSpace,
    NotServing,
    Unavailable,
)
from threefs.ids import ChunkId
from threefs.routing import Routing
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.methods import (
    FETCH_CHUNK,
    INSPECT_CHUNK,
    INVENTORY,
    LAST_CHUNK,
    LIST_CHUNKS,
    QUERY_VERSION,
    READ,
    SCAN_CHUNKS,
    SPACE_INFO,
    START_SCRUB,
    SYNC_DONE,
)
from threefs.rpc.server import Server
from threefs.rpc.server_connection import Call
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
from threefs_storage.chain.writes import Writes
from threefs_storage.chunk_inspection import inspect_chunk
from threefs_storage.chunk_listing import scan_chunks
from threefs_storage.engine.chunk_record import Record
from threefs_storage.health import unknown_stores
from threefs_storage.health.chunk_repair import Repair
from threefs_storage.health.peer_room import PeerRoomQuery
from threefs_storage.health.replica_comparison import Comparison
from threefs_storage.health.scrubber import Scrubber
from threefs_storage.health.target_recovery import TargetRecovery
from threefs_storage.scheduling.background_pace import Foreground, PaceLimits
from threefs_storage.scheduling.background_scheduler import BackgroundScheduler, Work, no_foreground
from threefs_storage.scheduling.space_release import SpaceRelease
from threefs_storage.target import Target
from threefs_storage.targets import Targets

_MAX_LISTED = 4096
_FINISH_S = 0.5  # for a pending version that a query meets
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
        messages = parts.shared_messages(others, clock=clock)
        successor = Successor(others, messages, clock=clock, pool=pool)
        self._craq = parts.craq(successor, self.trace, clock=clock, random=random)
        self._reads = Reads(targets, self._craq, VersionQuery(others, clock=clock), pool, clock)
        early_staging = parts.early_staging(self._craq, successor, self.trace, clock=clock)
        self._pending_recovery = PendingRecovery(self._craq, early_staging, clock)
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
        self._writes = Writes(
            targets, cluster, self._craq, early_staging, messages, self.scheduler, self._room, self._target_recovery
        )
        self._report = report
        self._started: set[int] = set()  # targets that have their tasks
        self._removing: set[int] = set()
        self._background = BackgroundTasks()

    def start(self, server: Server) -> None:
        """Serve, and finish the versions that a crash has left pending."""
        server.add(READ, self._reads.read)
        self._writes.start(server)
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
        self._cluster.on_change(self.apply_routing)
        self.apply_routing(self._cluster.routing)
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

    def apply_routing(self, routing: Routing) -> None:
        """Act in this routing, with the targets that are open now."""
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
        that was restored from a backup of before it was made does not know it at all, and proves nothing; nor does the
        next one, from a later backup."""
        if target.was_unknown:
            await unknown_stores.mark(target.engine)  # now: this process may end before the store is closed
        await self._repair.end(target)
        await self._pending_recovery.end(target)
        while len(target.locks) or target.reopening:  # calls that are under way find out that they have no lease
            await self._clock.sleep(_REMOVAL_PAUSE_S)
        named, is_gone = self._cluster.routing.targets.get(target.target_id), target.state is None
        moved = named is not None and named.chain_id == target.chain.chain_id and not target.was_unknown
        if is_gone and moved:
            await self._targets.delete(target)
        elif is_gone:
            await self._targets.set_aside(target)
        self._started.discard(target.target_id)
        self._removing.discard(target.target_id)
        if not is_gone:  # the manager was restored once more meanwhile, and knows it
            self.apply_routing(self._cluster.routing)
        self._report()

    def _restart_chain_tasks(self, target: Target) -> None:
        self._pending_recovery.restart(target)
        self._resync.restart(target)

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
                await self._craq.finish_pending(target, chunk, self._clock.monotonic() + _FINISH_S)
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
        # The chain may count on this target before it has stored that it serves: what it has forgotten must stay so,
        # and the next version of a removed chunk has to be above those that its predecessor has forgotten.
        target.logical_time.observe(request.stamp)
        target.save_logical_time()
        await target.engine.flush()
        target = self._syncing(request.target, request.chain_version)
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
                try:
                    await self._craq.finish_pending(target, chunk, self._clock.monotonic() + remaining_s())
                except NoSpace as error:  # the disk gets room soon, or others go on without it
                    raise Unavailable(f"a pending version cannot be finished now: {error.message}") from error
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
                room_bytes=target.room_bytes,
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
