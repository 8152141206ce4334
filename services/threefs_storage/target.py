"""A target: one replica of a chain, with its chunk engine and what it knows of its chain."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from threefs.env.clock import CLOCK, Clock
from threefs.errors import ChainChanged, Corrupt, NoSpace, NotServing, ThreefsError, Unavailable
from threefs.ids import ChunkId, TargetId
from threefs.routing import Chain, ChainMember, LocalState, PublicState
from threefs_storage.chain.chunk_locks import ChunkLocks
from threefs_storage.chain.early_versions import EarlyVersions
from threefs_storage.chain.logical_time import LogicalTime
from threefs_storage.engine.chunk_record import Record
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.engine.record_store import LOGICAL_TIME
from threefs_storage.health.quarantine import is_replacement

T = TypeVar("T")
_LOG = structlog.get_logger()

#: The most damaged chunks that are kept for repair. Later passes of the scrubber find the others.
MAX_DAMAGED = 4096
#: A disk that has refused a write for which it said that it had room may have a quota. For so long it is not believed.
_DISTRUST_S = 60.0
#: First versions of chunks rise by this power of two per minute: nobody writes one chunk that often.
_VERSIONS_PER_MINUTE_BITS = 20
_MINUTES_BYTES = 4


class Target:
    """One replica of a chain."""

    def __init__(self, target_id: TargetId, engine: ChunkEngine, chain: Chain, clock: Clock = CLOCK) -> None:
        self.target_id = target_id
        self._clock = clock
        self.logical_time = LogicalTime(clock)
        #: Which pending versions are early. All others are full.
        self.early = EarlyVersions()
        #: Chunks whose record or bytes fail their checksum, and are not repaired yet.
        self.damaged: dict[ChunkId, None] = {}
        self.damage_added = asyncio.Event()
        self.damaged_chunks_found = 0
        self.attach_engine(engine)
        self.locks = ChunkLocks()
        #: Chunks whose pending version was staged in the present chain version. A replica that has left the chain may
        #: have committed and shown any other pending version, so that one is finished before the chunk is read.
        self.current_pending: set[ChunkId] = set()
        #: Chunks with a pending version whose change was cancelled: no call forwards it any more.
        self.abandoned: set[ChunkId] = set()
        #: Rises with each chain version in which the content of this target may have to be replaced before it serves
        #: again. A change that began in an earlier epoch is void, however late it continues.
        self.epoch = 0
        self._change_epochs: dict[ChunkId, int] = {}  # the epoch in which the change under way of a chunk began
        #: Set when a chunk is added to `abandoned`.
        self.recovery_requested = asyncio.Event()
        self.repaired_chunks = 0
        self.scrubbed_chunks = 0
        self.scrubbed_bytes = 0
        self.scrub_passes = 0
        self.scrubbing = False  # a pass of the scrubber is at this target
        self.pass_chunks = 0  # that this pass has looked at
        self.scrub_interval_s = 0.0  # of the scrubber that reads this target; 0: none has begun
        self._scrubbed_at = clock.monotonic()  # the end of its last pass here; before the first, the opening
        #: Set while no pending version of an older chain version is left.
        self.pending_recovered = asyncio.Event()
        #: The end of the lease (I5), which heartbeats move; until when its chain has not gone on without it.
        self.leased_until = self.in_chain_until = -math.inf
        #: This target accepts no lease any more: the manager is about to take it out of its chain.
        self.leaving = False
        self.report: Callable[[], None] = lambda: None  # sends a heartbeat at once
        self.on_failure: Callable[[ThreefsError], None] = lambda error: None  # called when the disk has failed
        #: The number of serving targets that the chain needs to take writes of clients.
        self.min_replicas = 1
        #: An administrator wants it out of service; and it leaves the write path for that now.
        self.is_out_of_service = self.held = False
        #: A manager did not know it, and it had no lease since: its store may have what no other one has.
        self.was_unknown = False
        #: Its store is being closed and opened again: it must not be deleted just now.
        self.reopening = False
        #: A write of a predecessor, or a record, found no room on the disk; no descriptors or no memory, and it left.
        self.full = self.exhausted = False
        #: Its disk says that it has room, and refuses it: there is a quota, which is used up.
        self.quota_used_up = False
        self._refused_at = -math.inf  # when the disk refused a write for which it had said that it had room
        #: The chain version in which the predecessor has said that nothing is missing here.
        self.synced_in_version = 0
        self.syncing_since = -math.inf  # by the monotonic clock
        #: Chunks of this target that the resync of its successor has compared, and how many there are.
        self.resync_counts = (0, 0)
        self.sync_progress = 0  # rises while that resync proceeds
        self.chain = chain  # the newest version that this target knows
        self.state: PublicState | None = None
        self.serving = False
        self.is_head = False
        self.is_tail = False
        self.is_last = False  # the last target that writes reach
        self.is_behind_head = False  # the head is its predecessor
        self.successor: ChainMember | None = None  # the next target that writes reach
        self.has_serving_successor = False
        self.hops_behind = 0  # how many targets writes reach behind the successor
        self._chain_waits: dict[asyncio.Timeout, None] = {}
        self.apply_chain(chain)

    @property
    def unscrubbed_s(self) -> float:
        """Since the last pass of the scrubber over all chunks, or since the target was opened."""
        return self._clock.monotonic() - self._scrubbed_at

    def note_scrub_pass(self) -> None:
        self.scrub_passes += 1
        self._scrubbed_at = self._clock.monotonic()

    def attach_engine(self, engine: ChunkEngine) -> None:
        """Use this engine from now on."""
        self.engine = engine
        self.is_closed = False  # its store could not be opened again yet
        self.replaces_damaged = is_replacement(engine)
        self._saved_minutes = -1  # of the logical time; not known
        self.early.clear()
        self.logical_time.observe(engine.newest_stamp)
        engine.on_failure = self._disk_failed
        for chunk in engine.damaged:
            self.note_damage(chunk)

    def _disk_failed(self, error: ThreefsError) -> None:
        """Serve nothing any more, and tell the manager at once."""
        if not self.leaving:
            _LOG.error("a store has failed: its target leaves the chain", target=self.target_id, error=error.message)
            self.leave()
            self.report()
        self.on_failure(error)

    def apply_chain(self, chain: Chain) -> None:
        """Take over the first or a newer version of the chain."""
        assert chain.chain_id == self.chain.chain_id, "a target never changes its chain"
        assert chain.version >= self.chain.version, "chain versions rise (I5)"
        self.chain = chain
        was, self.state = self.state, chain.state(self.target_id)
        if self.state is PublicState.SYNCING and was is not PublicState.SYNCING:
            self.syncing_since = self._clock.monotonic()
        self.serving = self.state is PublicState.SERVING
        self.serving_count = len(chain.serving)
        self.is_head = chain.head == self.target_id
        self.is_tail = chain.tail == self.target_id
        self.is_last = chain.last == self.target_id
        self.quota_used_up = self.quota_used_up and not self.serving
        if self.gives_way:
            self.end_lease()
        second = chain.successor(chain.head) if chain.head is not None else None
        self.is_behind_head = second is not None and second.target_id == self.target_id
        successor = self.successor = chain.successor(self.target_id)
        self.has_serving_successor = successor is not None and successor.state is PublicState.SERVING
        self.hops_behind = chain.hops_after(successor.target_id) if successor is not None else 0
        self.current_pending.clear()
        self.abandoned.clear()
        self.pending_recovered.clear()
        if not self.serving or self.is_head:
            self.early.clear()  # as head it finishes them, as syncing it drops them (P7, P8)
        if self.state not in (PublicState.SERVING, PublicState.LASTSRV):
            self.epoch += 1
        for wait in self._chain_waits:
            if not wait.expired():  # one that has expired may still wait for its turn, and cannot be moved again
                wait.reschedule(-math.inf)
        if self.damaged or self.engine.lost_chunks:
            self.damage_added.set()  # a member that has returned may have a good copy
        self.check_invariants()

    def check_invariants(self) -> None:
        """Assert what is true of every target between two steps of the event loop (docs/protocol.md, "What is always
        true of a target")."""
        writable = (PublicState.SERVING, PublicState.SYNCING)
        assert self.state is self.chain.state(self.target_id), "the state of a target is that of the chain it knows"
        assert not self.is_tail or self.state is PublicState.SERVING, "the tail serves"
        assert not self.is_last or self.state in writable, "writes reach only serving and syncing targets"
        assert self.leased_until == -math.inf or not (self.leaving or self.gives_way), (
            "a target that leaves holds no lease (R9)"
        )
        assert self.synced_in_version <= self.chain.version, "only the present chain version can be complete"
        assert all(chunk in self.locks for chunk in self._change_epochs), "a change holds the lock of its chunk"
        assert max(self._change_epochs.values(), default=0) <= self.epoch, "epochs rise"
        assert self.serving or not len(self.early), "only a serving target has early versions (P8)"
        assert not self.is_head or not len(self.early), "at the head every pending version is full (P7)"
        assert self.current_pending.isdisjoint(self.early), "an early version is not forwarded (P4)"
        assert self.abandoned.isdisjoint(self.early), "an early version is not finished (P4)"
        compared, total = self.resync_counts
        assert 0 <= compared <= total, "a resync compares only chunks that exist"

    def begin_change(self, chunk: ChunkId) -> None:
        """A change of this chunk begins. The caller holds the chunk's lock."""
        assert chunk in self.locks and chunk not in self._change_epochs, "a chunk is changed by one call at a time"
        self._change_epochs[chunk] = self.epoch

    def check_epoch(self, chunk: ChunkId) -> None:
        """Raises NotServing if this target was out of its chain since the change began, even if it has returned: the
        content that the change began with has been replaced (R12)."""
        if self._change_epochs[chunk] != self.epoch:
            raise NotServing(f"target {self.target_id} was out of its chain since this change began")

    def end_change(self, chunk: ChunkId) -> None:
        """A change of this chunk ends, done or not. The caller still holds the chunk's lock."""
        assert chunk in self.locks, "a change ends before its lock is released"
        void = self._change_epochs.pop(chunk) != self.epoch
        if chunk not in self.engine.pending_chunks or chunk in self.early:
            return
        if void and self.serving:
            try:
                self.engine.drop_pending(chunk)
            except ThreefsError:  # it must not pass for a pending version of this epoch
                self.leave()
                self.report()
        elif self.serving:
            self.abandoned.add(chunk)
            self.recovery_requested.set()

    def has_full_pending(self, chunk: ChunkId) -> bool:
        """Whether a full version is pending: one that may be committed elsewhere."""
        return chunk in self.engine.pending_chunks and chunk not in self.early

    def drop_early(self, chunk: ChunkId) -> None:
        """Drop the early version, if the chunk has one. The caller holds the chunk's lock. Not durable at once; after a
        crash it may be pending again (P10, P12)."""
        assert chunk in self.locks, "a version is dropped under the lock of its chunk"
        if chunk in self.early:
            self.engine.drop_pending(chunk)
            self.early.discard(chunk)

    def note_committed(self, chunk: ChunkId) -> None:
        """The chunk has no pending version any more."""
        self.current_pending.discard(chunk)
        self.abandoned.discard(chunk)

    def drop_outdated(self, chunk: ChunkId) -> bool:
        """Drop the pending version of an older chain version at a syncing target: the predecessor knows better (R5).
        It is kept until then, because its bytes may be the only good ones. False if the disk prevents it."""
        if not self._outdated(chunk):
            return True
        try:
            self.engine.drop_pending(chunk)
        except ThreefsError:  # the engine has failed, and reports so
            return False
        return True

    def _outdated(self, chunk: ChunkId) -> bool:
        try:
            record = self.engine.record(chunk)
        except ThreefsError:
            return False  # a whole chunk of the predecessor replaces a damaged record
        return record is not None and record.pending is not None and record.pending.chain_version < self.chain.version

    def drop_all_outdated(self) -> bool:
        """Whether no outdated version is pending at this syncing target any more. It would be finished as soon as the
        target serves."""
        return not any(
            self._outdated(chunk) and (chunk in self.locks or not self.drop_outdated(chunk))
            for chunk in self.engine.pending()
        )

    def length_of(self, chunk: ChunkId) -> int:
        """About the bytes of the chunk; 0 if its record is damaged."""
        try:
            record = self.engine.record(chunk)
        except ThreefsError:
            return 0
        versions = (record.committed, record.pending) if record is not None else ()
        return max((version.length for version in versions if version is not None), default=0)

    @property
    def all_members_serve(self) -> bool:
        return len(self.chain.serving) == len(self.chain.members)

    @property
    def first_version(self) -> int:
        """The first version of a chunk without a record. It is higher than every version that the chunk may have had
        before its record was collected."""
        return (self.logical_time.now << _VERSIONS_PER_MINUTE_BITS) + 1

    def save_logical_time(self) -> None:
        """Write it to the store. Not durable at once, but before all that is written later. Raises NoSpace,
        Unavailable."""
        now = self.logical_time.now
        if self._saved_minutes != now:
            self.engine.put_note(LOGICAL_TIME, now.to_bytes(_MINUTES_BYTES, "big"))
            self._saved_minutes = now

    def forget_removed(self, chunk: ChunkId) -> None:
        """Forget the tombstone of a chunk. The logical time stays behind, also after a crash: the next version of the
        chunk has to be higher than all before."""
        self.save_logical_time()
        self.engine.forget(chunk)

    def note_damage(self, chunk: ChunkId) -> bool:
        """Have this chunk repaired: its record or its bytes fail their checksum. True if that was not known."""
        if chunk in self.damaged or chunk in self.engine.lost_chunks or len(self.damaged) >= MAX_DAMAGED:
            return False
        self.damaged[chunk] = None
        self.damaged_chunks_found += 1
        self.damage_added.set()
        return True

    @property
    def has_lease(self) -> bool:
        """Whether it holds a lease now: until the lease ends, the manager puts it out of no chain (I5)."""
        return self.leased_until > self._clock.monotonic()

    @property
    def lease_lapsed(self) -> bool:
        """Whether its chain may have gone on without it since its last lease. The manager has to know that before it
        grants the next one: its store may be an older copy, in which the target still serves (I15)."""
        return self._clock.monotonic() >= self.in_chain_until

    def note_refusal(self) -> None:
        """The disk has refused a write for which it had said that it had room."""
        self._refused_at = self._clock.monotonic()

    @property
    def room_bytes(self) -> int:
        """That clients' writes may take."""
        return 0 if self.quota_used_up else self.engine.room_bytes

    @property
    def may_refuse(self) -> bool:
        """Whether the disk may refuse writes for which it says that it has room."""
        return self._clock.monotonic() - self._refused_at < _DISTRUST_S

    @property
    def has_failed(self) -> bool:
        """Whether its disk has failed, so that its content is unknown. A full disk has not failed."""
        return self.engine.failure is not None and not isinstance(self.engine.failure, NoSpace)

    def inventory(self, after: ChunkId | None, limit: int) -> list[tuple[ChunkId, Record | None]]:
        """The engine's inventory. Raises Corrupt if the table cannot be read; then this target leaves its chain if
        another one serves."""
        return self._leave_if_corrupt(lambda: self.engine.inventory(after, limit))

    def read_list(self, inode: int, read: Callable[[], T]) -> T:
        """The result of `read`, which lists chunks of that inode. Raises Unavailable: a record in the list is damaged,
        and is being repaired."""
        try:
            return read()
        except Corrupt as error:
            for chunk in self._leave_if_corrupt(lambda: self.engine.unreadable(inode)):
                self.note_damage(chunk)
            raise Unavailable(f"a record of inode {inode} is damaged, try again later: {error.message}") from None

    def _leave_if_corrupt(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except Corrupt as error:
            if len(self.chain.serving) > self.serving and not self.has_failed:
                self.engine.fail(error)
            raise

    def leave(self) -> None:
        """Give the lease up for good. Only after that may the manager hear that this target is out."""
        self.leaving = True
        self.end_lease()

    def end_lease(self) -> None:
        """Give the lease up. Its chain may go on without it at once."""
        self.leased_until = self.in_chain_until = -math.inf

    def leave_divergent(self, message: str) -> None:
        """Leave the chain, and return by resync: the content here is not that of the chain (I13). The only serving
        target stays."""
        if self.serving and len(self.chain.serving) > 1 and not self.has_failed:
            self.engine.fail(Corrupt(message))

    async def cancel_on_chain_change(self, work: Awaitable[T]) -> T:
        """The result of `work`, which is cancelled when the chain changes: the target that it calls may be gone.

        Raises ChainChanged.
        """
        wait = asyncio.timeout(None)
        try:
            async with wait:
                self._chain_waits[wait] = None
                return await work
        except TimeoutError:
            if not wait.expired():
                raise
            raise ChainChanged(f"chain {self.chain.chain_id} has changed to version {self.chain.version}") from None
        finally:
            self._chain_waits.pop(wait, None)

    @property
    def gives_way(self) -> bool:
        """Whether a move takes this target out of its chain, or an administrator out of service, and the chain takes
        writes of clients without it. It holds no lease then. It does again if another version of the chain needs it."""
        if self.held:
            return True
        return self.chain.leaving == self.target_id and len(self.chain.staying) >= self.min_replicas

    @property
    def local_state(self) -> LocalState:
        """The state that heartbeats report."""
        if self.leaving or self.gives_way:
            return LocalState.OFFLINE
        if self.state is PublicState.SYNCING and self.synced_in_version != self.chain.version:
            return LocalState.ONLINE
        if self.state in (PublicState.SYNCING, PublicState.SERVING):
            return LocalState.UPTODATE
        return LocalState.ONLINE
