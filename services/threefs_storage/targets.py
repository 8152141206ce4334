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
from threefs_storage.health.quarantine import check_disk, elsewhere, put_aside

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
        self.age = LogicalTime(clock)
        self.adopt(engine)
        self.locks = ChunkLocks()
        #: Chunks whose pending version was taken in the chain version that is known now. Any other pending version may
        #: have been committed and shown by a replica that has gone: it is finished before the chunk is read.
        self.current: set[ChunkId] = set()
        #: Chunks of `current` whose change was given up: nobody forwards the pending version any more.
        self.abandoned: set[ChunkId] = set()
        #: Rises whenever what is here has to be replaced before it may be served again. A change that was begun before
        #: that is void, however late it wakes up.
        self.tenure = 0
        self._holders: dict[ChunkId, int] = {}  # the tenure in which a chunk's change was begun
        #: Set when something was abandoned.
        self.wanted = asyncio.Event()
        #: Chunks that could not be read as they were written, and are not repaired yet.
        self.damaged: dict[ChunkId, None] = dict.fromkeys(engine.damaged[:MOST_DAMAGED])
        self.hurt = asyncio.Event()  # set when one is added
        self.damage_found = len(engine.damaged)
        self.repaired = 0
        self.scrubbed = 0
        self.scrubbed_bytes = 0
        self.scrub_passes = 0
        #: Set while no pending version of an older chain version is left.
        self.finished = asyncio.Event()
        #: I5: nothing is answered after this moment of the monotonic clock. Set anew by every acknowledged heartbeat.
        self.leased_until = -math.inf
        #: It takes no lease any more: it is about to be taken out of its chain.
        self.left = False
        self.report: Callable[[], None] = lambda: None  # sends a heartbeat now
        self.on_failure: Callable[[ThreefsError], None] = lambda error: None  # its disk has failed
        #: How many of the chain must serve, for it to take writes of clients.
        self.min_replicas = 1
        #: There was no room for something that had to be written.
        self.full = False
        #: The chain version in which the predecessor has said that nothing is missing here.
        self.complete_in = 0
        #: Of the successor that is brought up to date: chunks looked at, and all of them.
        self.resynced = (0, 0)
        self.sync_progress = 0  # rises while that gets on
        self.chain = chain  # the newest version that is known here
        self.state: PublicState | None = None
        self.serving = False
        self.is_tail = False
        self.is_last = False  # of those that writes reach
        self._clock = clock
        self._waits: dict[asyncio.Timeout, None] = {}
        self.learn(chain)

    def adopt(self, engine: ChunkEngine) -> None:
        """This is its store from now on."""
        self.engine = engine
        self.age.seen(engine.newest_stamp)
        engine.on_failure = self._disk_failed

    def _disk_failed(self, error: ThreefsError) -> None:
        """Nothing is served from here any more, and the manager is told at once."""
        if not self.left:
            _LOG.error("a store has failed: its target leaves the chain", target=self.target_id, error=error.message)
            self.leave()
            self.report()
            self.on_failure(error)

    def learn(self, chain: Chain) -> None:
        """A chain version came in, the first or a newer one."""
        assert chain.version >= self.chain.version, "chain versions rise (I5)"
        self.chain = chain
        self.state = chain.state(self.target_id)
        self.serving = self.state is PublicState.SERVING
        self._copies = len(chain.serving)
        self.is_tail = chain.tail == self.target_id
        self.is_last = chain.last == self.target_id
        self.current.clear()
        self.abandoned.clear()
        self.finished.clear()
        if self.state not in (PublicState.SERVING, PublicState.LASTSRV):
            self.tenure += 1
        for wait in self._waits:
            if not wait.expired():  # it is told once, and may not have got round to it before the next version
                wait.reschedule(-math.inf)
        if self.damaged or self.engine.lost_chunks:
            self.hurt.set()  # a member that is back may have a good copy

    def hold(self, chunk: ChunkId) -> None:
        """A change of this chunk begins. To be called with its lock."""
        self._holders[chunk] = self.tenure

    def check_tenure(self, chunk: ChunkId) -> None:
        """Raises NotServing if this target was out of its chain since the change began, even if it is back: what the
        change was meant for has been replaced."""
        if self._holders[chunk] != self.tenure:
            raise NotServing(f"target {self.target_id} was out of its chain meanwhile")

    def release(self, chunk: ChunkId) -> None:
        """A change of this chunk ends here, done or not. To be called before its lock is given up."""
        void = self._holders.pop(chunk) != self.tenure
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
            self.wanted.set()

    def committed(self, chunk: ChunkId) -> None:
        """The pending version is no longer pending."""
        self.current.discard(chunk)
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

    def all_dropped(self) -> bool:
        """Whether nothing outdated is pending at this syncing target: once it serves, that would be finished."""
        return not any(
            self._outdated(chunk) and (chunk in self.locks or not self.drop_outdated(chunk))
            for chunk in self.engine.pending()
        )

    @property
    def chain_whole(self) -> bool:
        """Whether every member of the chain serves."""
        return len(self.chain.serving) == len(self.chain.members)

    @property
    def first_version(self) -> int:
        """Of a chunk of which nothing is known: beyond all that it may have had before that was forgotten. Nobody makes
        so many versions of a chunk in a minute."""
        return (self.age.now << _VERSIONS_PER_MINUTE_BITS) + 1

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
        self.damage_found += 1
        self.hurt.set()
        return True

    @property
    def broken(self) -> bool:
        """Its disk has failed: what is there is no longer known. A full disk is not broken."""
        return self.engine.failure is not None and not isinstance(self.engine.failure, NoSpace)

    def inventory(self, after: ChunkId | None, limit: int) -> list[tuple[ChunkId, Record | None]]:
        """As the engine's. Raises Corrupt: nobody knows what all is here, so this target leaves if others serve."""
        return self._all(lambda: self.engine.inventory(after, limit))

    def listed(self, inode: int, look: Callable[[], T]) -> T:
        """What `look` finds in a list of that inode's chunks. Raises Unavailable: the list is being repaired."""
        try:
            return look()
        except Corrupt as error:
            for chunk in self._all(lambda: self.engine.unreadable(inode)):
                self.note_damage(chunk)
            raise Unavailable(f"to be asked again when it is repaired: {error.message}") from None

    def _all(self, look: Callable[[], T]) -> T:
        try:
            return look()
        except Corrupt as error:
            if len(self.chain.serving) > self.serving and not self.broken:
                self.engine.give_up(error)
            raise

    def leave(self) -> None:
        """Give the lease up for good. After that the manager may be told that this target is out."""
        self.left = True
        self.leased_until = -math.inf

    async def unless_changed(self, work: Awaitable[T]) -> T:
        """The result of `work`, given up as soon as the chain changes: whom it waits for may be gone. Raises
        ChainChanged."""
        wait = asyncio.timeout(None)
        try:
            async with wait:
                self._waits[wait] = None
                return await work
        except TimeoutError:
            if not wait.expired():
                raise
            raise ChainChanged(f"chain {self.chain.chain_id} has changed to version {self.chain.version}") from None
        finally:
            self._waits.pop(wait, None)

    @property
    def local_state(self) -> LocalState:
        """What the manager is told."""
        if self.left:
            return LocalState.OFFLINE
        if self.state is PublicState.SYNCING and self.complete_in != self.chain.version:
            return LocalState.ONLINE
        if self.state in (PublicState.SYNCING, PublicState.SERVING):
            return LocalState.UPTODATE
        return LocalState.ONLINE

    def check_head(self) -> None:
        if self.chain.head != self.target_id:
            raise NotServing(f"target {self.target_id} is not the head of chain {self.chain.chain_id}")

    def check_copies(self) -> None:
        """May a client's write be taken, and acknowledged? Raises TooFewReplicas."""
        if self._copies < self.min_replicas:
            raise TooFewReplicas(
                f"chain {self.chain.chain_id} has {self._copies} of {len(self.chain.members)} copies, and at least "
                f"{self.min_replicas} are needed for a write: wait until more serve (`threefs status`), or lower the "
                "minimum (`threefs chain min-replicas`)"
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
        self._grants = 0  # rises whenever what heartbeats under way may grant is void
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
        target.adopt(await self._engine(target.target_id, target.chain))
        self._grants += 1  # a heartbeat that was sent before it left must not speak for it now
        target.full = target.left = False
        target.learn(target.chain)

    def _disk_failed(self, disk: str, error: ThreefsError) -> None:
        """All targets on that disk go with it. Damage is no failure: the others read what they have, and see."""
        if isinstance(error, Corrupt):
            return
        for target in self:
            if not target.broken and target.engine.space().disk == disk:
                target.engine.give_up(error)

    async def _engine(self, target_id: TargetId, chain: Chain) -> ChunkEngine:
        """A store whose table is damaged is put aside, if the chain may have others that keep the same."""
        directory = self._directory / f"target-{target_id}"
        try:
            return await self._open_engine(directory)
        except Corrupt as error:
            if not elsewhere(chain, target_id):
                raise
            aside = put_aside(directory)
            _LOG.error("a damaged store was put aside", target=target_id, directory=str(aside), error=error.message)
        return await self._open_engine(directory)

    async def _open_engine(self, directory: Path) -> ChunkEngine:
        return await ChunkEngine.open(
            directory, self._disk, self._settings, random=self._random, open_table=self._open_table
        )

    async def keep(self, routing: Routing) -> None:
        """Make the chain versions of that routing durable here. To be done before anything is answered in them; a
        target that has left answers nothing before it hears of yet another one."""
        await asyncio.gather(*(kept_version.keep(t.engine, t.chain.chain_id, routing) for t in self if not t.left))

    def learn(self, routing: Routing) -> list[Target]:
        """Take over newer chain versions; the targets whose chain has changed."""
        changed = []
        minimums = routing.minimums()
        for target in self:
            target.min_replicas = minimums.get(target.chain.chain_id, 1)
            chain = routing.chains[target.chain.chain_id]
            if chain.version > target.chain.version:
                target.learn(chain)
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
        opened_in = self._grants

        def grant(targets: Iterable[int], until: float) -> None:
            if opened_in != self._grants:
                return
            for target_id in targets:
                target = self.by_id.get(target_id)
                if target is not None and not target.left:
                    target.leased_until = max(target.leased_until, until)

        return grant

    def yield_leases(self) -> None:
        """Give all leases up, until a heartbeat is acknowledged that was sent after this."""
        self._grants += 1
        for target in self:
            target.leased_until = -math.inf

    def leave(self) -> None:
        """Give all leases up for good."""
        for target in self:
            target.leave()

    def stores(self) -> list[manager_pb2.Store]:
        """For the registration."""
        return [
            manager_pb2.Store(target_id=t.target_id, store_id=t.engine.store_id, kept=kept_version.recall(t.engine))
            for t in self
        ]

    def reports(self) -> list[manager_pb2.TargetReport]:
        """For the heartbeat. A broken target gives its lease up before it is reported (R9)."""
        for target in self:
            if target.broken:
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
    synced, to_sync = target.resynced
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
        scrubbed_chunks=target.scrubbed,
        damaged_chunks=target.damage_found,
        repaired_chunks=target.repaired,
        unrepaired_chunks=len(target.damaged),
        scrubbed_bytes=target.scrubbed_bytes,
        scrub_passes=target.scrub_passes,
        sync_progress=target.sync_progress,
        lost_chunks=len(target.engine.lost_chunks),
        read_only=target.full or target.engine.read_only is not None,
        failure=failure.message[:_FAILURE_CHARS] if failure is not None else "",
    )
