"""The targets of this process: each its chunk engine and what it knows of its chain."""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from threefs.env.clock import CLOCK, Clock
from threefs.env.disk import Disk
from threefs.env.random import RANDOM, Random
from threefs.errors import ChainChanged, Corrupt, NoSpace, NotServing, ThreefsError, TooFewReplicas, Unavailable
from threefs.ids import ChunkId, NodeId, TargetId
from threefs.kv.table import Table
from threefs.routing import Chain, LocalState, PublicState, Routing
from threefs.wire import manager_pb2
from threefs_storage.chain import kept_version
from threefs_storage.chain.chunk_locks import ChunkLocks
from threefs_storage.chain.logical_time import LogicalTime
from threefs_storage.engine.engine import ChunkEngine, EngineSettings
from threefs_storage.engine.record_store import RecordTable
from threefs_storage.engine.records import Record
from threefs_storage.health.quarantine import check_disk, has_other_copy, quarantine

T = TypeVar("T")
_LOG = structlog.get_logger()

#: Damaged chunks that wait for their repair; of more a target need not know.
MOST_DAMAGED = 4096
_FAILURE_CHARS = 200
_VERSIONS_PER_MINUTE_BITS = 20


class Target:
    """One replica of a chain."""

    def __init__(self, target_id: TargetId, engine: ChunkEngine, chain: Chain, clock: Clock = CLOCK) -> None:
        self.target_id = target_id
        self.logical_time = LogicalTime(clock)
        self.attach_engine(engine)
        self.locks = ChunkLocks()
        #: Chunks whose pending version was taken in the chain version that is known now. Any other pending version may
        #: have been committed and shown by a replica that has gone: it is finished before the chunk is read.
        self.current_pending: set[ChunkId] = set()
        #: Chunks of `current` whose change was given up: nobody forwards the pending version any more.
        self.abandoned: set[ChunkId] = set()
        #: Rises whenever what is here has to be replaced before it may be served again. A change that was begun before
        #: that is void, however late it wakes up.
        self.epoch = 0
        self._change_epochs: dict[ChunkId, int] = {}  # the tenure in which a chunk's change was begun
        #: Set when something was abandoned.
        self.recovery_requested = asyncio.Event()
        #: Chunks that could not be read as they were written, and are not repaired yet.
        self.damaged: dict[ChunkId, None] = dict.fromkeys(engine.damaged[:MOST_DAMAGED])
        self.damage_added = asyncio.Event()  # set when one is added
        self.damaged_chunks_found = len(engine.damaged)
        self.repaired_chunks = 0
        self.scrubbed_chunks = 0
        self.scrubbed_bytes = 0
        self.scrub_passes = 0
        #: Set while no pending version of an older chain version is left.
        self.pending_recovered = asyncio.Event()
        #: I5: nothing is answered after this moment of the monotonic clock. Set anew by every acknowledged heartbeat.
        self.leased_until = -math.inf
        #: It takes no lease any more: it is about to be taken out of its chain.
        self.leaving = False
        self.report: Callable[[], None] = lambda: None  # sends a heartbeat now
        self.on_failure: Callable[[ThreefsError], None] = lambda error: None  # its disk has failed
        #: How many of the chain must serve, for it to take writes of clients.
        self.min_replicas = 1
        #: There was no room for something that had to be written.
        self.full = False
        #: The chain version in which the predecessor has said that nothing is missing here.
        self.synced_in_version = 0
        #: Of the successor that is brought up to date: chunks looked at, and all of them.
        self.resync_counts = (0, 0)
        self.sync_progress = 0  # rises while that gets on
        self.chain = chain  # the newest version that is known here
        self.state: PublicState | None = None
        self.serving = False
        self.is_tail = False
        self.is_last = False  # of those that writes reach
        self._clock = clock
        self._chain_waits: dict[asyncio.Timeout, None] = {}
        self.apply_chain(chain)

    def attach_engine(self, engine: ChunkEngine) -> None:
        """This is its store from now on."""
        self.engine = engine
        self.logical_time.observe(engine.newest_stamp)
        engine.on_failure = self._disk_failed

    def _disk_failed(self, error: ThreefsError) -> None:
        """Nothing is served from here any more, and the manager is told at once."""
        if not self.leaving:
            _LOG.error("a store has failed: its target leaves the chain", target=self.target_id, error=error.message)
            self.leave()
            self.report()
            self.on_failure(error)

    def apply_chain(self, chain: Chain) -> None:
        """A chain version came in, the first or a newer one."""
        assert chain.version >= self.chain.version, "chain versions rise (I5)"
        self.chain = chain
        self.state = chain.state(self.target_id)
        self.serving = self.state is PublicState.SERVING
        self._serving_count = len(chain.serving)
        self.is_tail = chain.tail == self.target_id
        self.is_last = chain.last == self.target_id
        self.current_pending.clear()
        self.abandoned.clear()
        self.pending_recovered.clear()
        if self.state not in (PublicState.SERVING, PublicState.LASTSRV):
            self.epoch += 1
        for wait in self._chain_waits:
            if not wait.expired():  # it is told once, and may not have got round to it before the next version
                wait.reschedule(-math.inf)
        if self.damaged or self.engine.lost_chunks:
            self.damage_added.set()  # a member that is back may have a good copy

    def begin_change(self, chunk: ChunkId) -> None:
        """A change of this chunk begins. To be called with its lock."""
        self._change_epochs[chunk] = self.epoch

    def check_epoch(self, chunk: ChunkId) -> None:
        """Raises NotServing if this target was out of its chain since the change began, even if it is back: what the
        change was meant for has been replaced."""
        if self._change_epochs[chunk] != self.epoch:
            raise NotServing(f"target {self.target_id} was out of its chain meanwhile")

    def end_change(self, chunk: ChunkId) -> None:
        """A change of this chunk ends here, done or not. To be called before its lock is given up."""
        void = self._change_epochs.pop(chunk) != self.epoch
        if chunk not in self.engine.pending_chunks:
            return
        if void and self.serving:
            try:
                self.engine.drop_pending(chunk)
            except ThreefsError:  # nobody may take it for one of this tenure
                self.leave()
                self.report()
        elif self.serving:
            self.abandoned.add(chunk)
            self.recovery_requested.set()

    def note_committed(self, chunk: ChunkId) -> None:
        """The pending version is no longer pending."""
        self.current_pending.discard(chunk)
        self.abandoned.discard(chunk)

    def drop_outdated(self, chunk: ChunkId) -> bool:
        """At a syncing target a pending version of an older chain version is void: the predecessor knows (R5). It is
        kept until then, for its bytes may be the only good ones. False if it cannot be dropped, as on a full disk."""
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
            return False  # a damaged record is replaced as a whole
        return record is not None and record.pending is not None and record.pending.chain_version < self.chain.version

    def drop_all_outdated(self) -> bool:
        """Whether nothing outdated is pending at this syncing target: once it serves, that would be finished."""
        return not any(
            self._outdated(chunk) and (chunk in self.locks or not self.drop_outdated(chunk))
            for chunk in self.engine.pending()
        )

    @property
    def all_members_serve(self) -> bool:
        """Whether every member of the chain serves."""
        return len(self.chain.serving) == len(self.chain.members)

    @property
    def first_version(self) -> int:
        """Of a chunk of which nothing is known: beyond all that it may have had before that was forgotten. Nobody makes
        so many versions of a chunk in a minute."""
        return (self.logical_time.now << _VERSIONS_PER_MINUTE_BITS) + 1

    def check(self, chain_version: int, *, syncing: bool = False) -> None:
        """May a request of that chain version be served? Raises ChainChanged, NotServing."""
        if chain_version != self.chain.version:
            raise ChainChanged(
                f"chain {self.chain.chain_id} has version {self.chain.version} here, the request {chain_version}"
            )
        if not self.serving and not (syncing and self.state is PublicState.SYNCING):
            raise NotServing(f"target {self.target_id} is {self.state.name if self.state else 'not in its chain'}")
        if self.leased_until <= self._clock.monotonic():
            raise NotServing(f"target {self.target_id} has no lease now")

    def note_damage(self, chunk: ChunkId) -> bool:
        """A chunk here cannot be read as it was written. True the first time."""
        if chunk in self.damaged or chunk in self.engine.lost_chunks or len(self.damaged) >= MOST_DAMAGED:
            return False
        self.damaged[chunk] = None
        self.damaged_chunks_found += 1
        self.damage_added.set()
        return True

    @property
    def has_failed(self) -> bool:
        """Its disk has failed: what is there is no longer known. A full disk is not broken."""
        return self.engine.failure is not None and not isinstance(self.engine.failure, NoSpace)

    def inventory(self, after: ChunkId | None, limit: int) -> list[tuple[ChunkId, Record | None]]:
        """As the engine's. Raises Corrupt: nobody knows what all is here, so this target leaves if others serve."""
        return self._leave_if_corrupt(lambda: self.engine.inventory(after, limit))

    def read_list(self, inode: int, look: Callable[[], T]) -> T:
        """What `look` finds in a list of that inode's chunks. Raises Unavailable: the list is being repaired."""
        try:
            return look()
        except Corrupt as error:
            for chunk in self._leave_if_corrupt(lambda: self.engine.unreadable(inode)):
                self.note_damage(chunk)
            raise Unavailable(f"to be asked again when it is repaired: {error.message}") from None

    def _leave_if_corrupt(self, look: Callable[[], T]) -> T:
        try:
            return look()
        except Corrupt as error:
            if len(self.chain.serving) > self.serving and not self.has_failed:
                self.engine.fail(error)
            raise

    def leave(self) -> None:
        """Give the lease up for good. After that the manager may be told that this target is out."""
        self.leaving = True
        self.leased_until = -math.inf

    async def cancel_on_chain_change(self, work: Awaitable[T]) -> T:
        """The result of `work`, given up as soon as the chain changes: whom it waits for may be gone. Raises
        ChainChanged."""
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
    def local_state(self) -> LocalState:
        """What the manager is told."""
        if self.leaving:
            return LocalState.OFFLINE
        if self.state is PublicState.SYNCING and self.synced_in_version != self.chain.version:
            return LocalState.ONLINE
        if self.state in (PublicState.SYNCING, PublicState.SERVING):
            return LocalState.UPTODATE
        return LocalState.ONLINE

    def check_head(self) -> None:
        if self.chain.head != self.target_id:
            raise NotServing(f"target {self.target_id} is not the head of chain {self.chain.chain_id}")

    def check_min_replicas(self) -> None:
        """May a client's write be taken, and acknowledged? Raises TooFewReplicas."""
        if self._serving_count < self.min_replicas:
            raise TooFewReplicas(
                f"chain {self.chain.chain_id} has {self._serving_count} of {len(self.chain.members)} copies, and at "
                f"least {self.min_replicas} are needed for a write: wait until more serve (`threefs status`), or lower "
                "the minimum (`threefs chain min-replicas`)"
            )

    def check_last(self) -> None:
        if not self.is_last:
            raise NotServing(f"target {self.target_id} is not where writes end in chain {self.chain.chain_id}")

    def check_tail(self) -> None:
        if not self.is_tail:
            raise NotServing(f"target {self.target_id} is not the last serving target of chain {self.chain.chain_id}")


class Targets:
    """All targets of this node by id."""

    def __init__(
        self,
        node_id: NodeId,
        directory: Path,
        disk: Disk,
        settings: EngineSettings,
        *,
        clock: Clock = CLOCK,
        random: Random = RANDOM,
        open_table: Callable[[Path], Awaitable[RecordTable]] = Table.open,
    ) -> None:
        self.by_id: dict[int, Target] = {}
        self._grant_epoch = 0  # rises whenever what heartbeats under way may grant is void
        self._node_id = node_id
        self._directory = directory
        self._disk = disk
        self._settings = settings
        self._clock = clock
        self._random = random
        self._open_table = open_table

    async def open(self, routing: Routing) -> None:
        """Raises StrangeStore where another node's targets lie, Corrupt, Unavailable."""
        check_disk(self._directory, self._node_id, routing)
        minimums = routing.minimums()
        for target in routing.targets.values():
            if target.node_id != self._node_id:
                continue
            chain = routing.chains[target.chain_id]
            engine = await self._engine(target.target_id, chain)
            chain = kept_version.newest(engine, chain)
            opened = self.by_id[target.target_id] = Target(target.target_id, engine, chain, self._clock)
            opened.min_replicas = minimums.get(chain.chain_id, 1)
            opened.on_failure = partial(self._disk_failed, engine.space().disk)

    async def reopen(self, target: Target) -> None:
        """Open the store of a target that has left its chain anew. Raises NoSpace, Unavailable, Corrupt."""
        with contextlib.suppress(ThreefsError):  # it has failed before
            await target.engine.close()
        target.attach_engine(await self._engine(target.target_id, target.chain))
        self._grant_epoch += 1  # a heartbeat that was sent before it left must not speak for it now
        target.full = target.leaving = False
        target.apply_chain(target.chain)

    def _disk_failed(self, disk: str, error: ThreefsError) -> None:
        """All targets on that disk go with it. Damage is no failure: the others read what they have, and see."""
        if isinstance(error, Corrupt):
            return
        for target in self:
            if not target.has_failed and target.engine.space().disk == disk:
                target.engine.fail(error)

    async def _engine(self, target_id: TargetId, chain: Chain) -> ChunkEngine:
        """A store whose table is damaged is put aside, if the chain may have others that keep the same."""
        directory = self._directory / f"target-{target_id}"
        try:
            return await self._open_engine(directory)
        except Corrupt as error:
            if not has_other_copy(chain, target_id):
                raise
            aside = quarantine(directory)
            _LOG.error("a damaged store was put aside", target=target_id, directory=str(aside), error=error.message)
        return await self._open_engine(directory)

    async def _open_engine(self, directory: Path) -> ChunkEngine:
        return await ChunkEngine.open(
            directory, self._disk, self._settings, random=self._random, open_table=self._open_table
        )

    async def keep_chains(self, routing: Routing) -> None:
        """Make the chain versions of that routing durable here. To be done before anything is answered in them; a
        target that has left answers nothing before it hears of yet another one."""
        await asyncio.gather(*(kept_version.save(t.engine, t.chain.chain_id, routing) for t in self if not t.leaving))

    def apply_routing(self, routing: Routing) -> list[Target]:
        """Take over newer chain versions; the targets whose chain has changed."""
        changed = []
        minimums = routing.minimums()
        for target in self:
            target.min_replicas = minimums.get(target.chain.chain_id, 1)
            chain = routing.chains[target.chain.chain_id]
            if chain.version > target.chain.version:
                target.apply_chain(chain)
                changed.append(target)
        return changed

    def get(self, target_id: int) -> Target:
        """Raises NotServing."""
        target = self.by_id.get(target_id)
        if target is None:
            raise NotServing(f"node {self._node_id} has no target {target_id}")
        return target

    def __iter__(self) -> Iterator[Target]:
        return iter(self.by_id.values())

    def open_grant(self) -> Callable[[Iterable[int], float], None]:
        """To be called when a heartbeat is sent; what it returns takes what the answer grants. Nothing, if leases were
        given up since then: whoever was told so may have acted on it."""
        opened_in = self._grant_epoch

        def grant(targets: Iterable[int], until: float) -> None:
            if opened_in != self._grant_epoch:
                return
            for target_id in targets:
                target = self.by_id.get(target_id)
                if target is not None and not target.leaving:
                    target.leased_until = max(target.leased_until, until)

        return grant

    def yield_leases(self) -> None:
        """Give all leases up, until a heartbeat is acknowledged that was sent after this."""
        self._grant_epoch += 1
        for target in self:
            target.leased_until = -math.inf

    def leave(self) -> None:
        """Give all leases up for good."""
        for target in self:
            target.leave()

    def stores(self) -> list[manager_pb2.Store]:
        """For the registration."""
        return [
            manager_pb2.Store(target_id=t.target_id, store_id=t.engine.store_id, kept=kept_version.load(t.engine))
            for t in self
        ]

    def reports(self) -> list[manager_pb2.TargetReport]:
        """For the heartbeat. A broken target gives its lease up before it is reported (R9)."""
        for target in self:
            if target.has_failed:
                target.leave()
        return [_report(target) for target in self]

    async def close(self) -> None:
        """One that cannot be closed, as its disk has failed, keeps the others from nothing."""
        for target in self:
            try:
                await target.engine.close()
            except ThreefsError as error:
                _LOG.warning("a store is not closed properly", target=target.target_id, error=error.message)


def _report(target: Target) -> manager_pb2.TargetReport:
    space = target.engine.space()
    synced, to_sync = target.resync_counts
    failure = target.engine.failure or target.engine.read_only
    return manager_pb2.TargetReport(
        target_id=target.target_id,
        local_state=target.local_state.value,
        chain_version=target.chain.version,
        capacity_bytes=space.capacity_bytes,
        used_bytes=space.used_bytes,
        chunks=space.chunks,
        free_bytes=space.free_bytes,
        reusable_bytes=space.reusable_bytes,
        disk=space.disk,
        store_id=target.engine.store_id,
        generation=target.engine.generation,
        synced_chunks=synced,
        chunks_to_sync=to_sync,
        scrubbed_chunks=target.scrubbed_chunks,
        damaged_chunks=target.damaged_chunks_found,
        repaired_chunks=target.repaired_chunks,
        unrepaired_chunks=len(target.damaged),
        scrubbed_bytes=target.scrubbed_bytes,
        scrub_passes=target.scrub_passes,
        sync_progress=target.sync_progress,
        lost_chunks=len(target.engine.lost_chunks),
        read_only=target.full or target.engine.read_only is not None,
        failure=failure.message[:_FAILURE_CHARS] if failure is not None else "",
    )
