"""The targets of this process: opened, given their chains and leases, and reported to the manager."""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import structlog

from threefs.env.clock import CLOCK, Clock
from threefs.env.disk import LEAVING, Disk
from threefs.env.random import RANDOM, Random
from threefs.errors import Corrupt, DiskFailed, NoSpace, NotServing, ThreefsError, Unavailable
from threefs.ids import NodeId, TargetId
from threefs.kv.table import Table
from threefs.leases import target_unheard_s
from threefs.routing import EMPTY, Chain, Routing
from threefs.routing import Target as RoutedTarget
from threefs.wire import manager_pb2
from threefs_storage.chain import kept_version
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.engine.engine_settings import EngineSettings
from threefs_storage.engine.failures import is_exhaustion
from threefs_storage.engine.record_store import RecordTable
from threefs_storage.engine.working_memory import WorkingMemory
from threefs_storage.health import unknown_stores
from threefs_storage.health.damaged_stores import DamagedStores
from threefs_storage.health.quarantine import check_disk, place_of
from threefs_storage.stray_stores import StrayStores
from threefs_storage.target import Target
from threefs_storage.unnamed_stores import UnnamedStores
from threefs_storage.unopened_stores import MAX_FAILURE_CHARS, UnopenedStores

_LOG = structlog.get_logger()

_REMOVAL_PAUSE_S = 5.0
_EXHAUSTED = Unavailable("the process has no descriptors or no memory left")


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
        #: What the manager is told of targets that are being deleted: their stores close, and nobody may read them.
        self._deleting: dict[TargetId, tuple[manager_pb2.Store, manager_pb2.TargetReport]] = {}
        #: Those that are deleted, as long as the routing names them without their being members: the manager forgets
        #: them soon, and a new store of them would be one that it does not know.
        self._deleted: set[TargetId] = set()
        self._damaged = DamagedStores(directory, disk)
        self.unnamed = UnnamedStores(directory, disk, self._open_engine, clock)
        self.strays = StrayStores(directory, disk, lambda: [*self.held, *self._deleting])
        self._unopened = UnopenedStores(directory, disk)
        self._grant_epoch = 0  # rises when the answers to heartbeats in flight must grant nothing
        self._unheard_s = 0.0  # see `target_unheard_s`; a routing tells it
        self._node_id = node_id
        self._directory = directory
        self._disk = disk
        self._settings = settings
        self._clock = clock
        self._random = random
        self._open_table = open_table
        self._memory = WorkingMemory()
        self._heard = EMPTY
        self._making_room = asyncio.Lock()
        self._failed_disks: dict[str, ThreefsError] = {}  # until the next start of the process

    def hear(self, routing: Routing) -> None:
        """Know this routing before it is adopted: that waits for stores that are being opened, and an administrator may
        have taken their targets out of service meanwhile."""
        self._heard = routing

    def adopt(self, settings: EngineSettings) -> None:
        """Go on with these settings. The ballast of stores that are open stays as it is."""
        self._settings = settings
        for target in self:
            target.engine.adopt(settings)

    async def open(self, routing: Routing, *, is_own_disk: bool = False) -> None:
        """Open the targets of this node. One that cannot be opened keeps no other one from serving. Raises StrangeStore
        if the disk is another node's; and if none can be opened, NoSpace, DiskFailed, or Unavailable: another process
        may have them. Where all are damaged this one stays: it replaces them when others have what they had, and when
        there is room."""
        check_disk(self._directory, self._node_id, routing, is_own=is_own_disk)
        await self._finish_removals()
        await self.open_added(routing)
        if self.by_id:
            return
        errors = {t: error for t, error in self._unopened.errors.items() if not isinstance(error, Corrupt)}
        waiting = {t for t, error in errors.items() if isinstance(error, NoSpace) and t in self._damaged.replaced}
        if errors.keys() - waiting:
            raise next(error for t, error in errors.items() if t not in waiting)

    def _missing(self, routing: Routing) -> list[RoutedTarget]:
        """The targets of this node that are not open, and are not being deleted. One that was deleted or set aside
        stays so while its chain goes on without it; so does a damaged one whose chain needs what it has, and for a
        while one whose opening fails slowly, or whose quarantined store is being deleted to make room for it."""
        own = [target for target in routing.targets.values() if target.node_id == self._node_id]
        known = {*self.by_id, *self._deleting}
        missing = {t.target_id: t for t in own if t.target_id not in known and not self._is_resting(t, routing)}
        in_turn = [missing[target_id] for target_id in self._unopened.in_turn(missing)]
        return [t for t in in_turn if not (self._is_gone(t.target_id) and routing.is_removed(t))]

    def _is_resting(self, target: RoutedTarget, routing: Routing) -> bool:
        is_making_room = self._damaged.is_dropping(target.target_id)
        return is_making_room or self._unopened.rests(target, routing, self._clock.monotonic())

    def _is_gone(self, target_id: TargetId) -> bool:
        return target_id in self._deleted or target_id in self.unnamed

    async def _open_target(self, target: RoutedTarget, routing: Routing) -> None:
        chain = routing.chains[target.chain_id]
        engine = await self._engine(target.target_id, chain, partial(routing.is_out_of_service, target.target_id))
        chain = kept_version.newest(engine, chain)
        opened = Target(target.target_id, engine, chain, self._clock)
        opened.min_replicas = routing.minimums().get(chain.chain_id, 1)
        opened.held = routing.yields(target.target_id, chain, opened.min_replicas)
        opened.is_out_of_service = routing.is_out_of_service(target.target_id)
        opened.on_failure = partial(self._disk_failed, engine.space().disk)
        opened.was_unknown = unknown_stores.is_marked(engine)
        opened.replaces_damaged |= target.target_id in self._damaged.replaced
        self.unnamed.discard(target.target_id)
        self._unopened.discard(target.target_id)
        self.by_id[target.target_id] = opened
        self._note_disk(opened)

    async def _finish_removals(self) -> None:
        """Of stores whose removal a crash has cut short: the manager may have forgotten their targets by now."""
        present = await self._disk.list_directory(self._directory)
        for name in [name for name in present if name.endswith(LEAVING)]:
            whole = name.removesuffix(LEAVING)
            if whole not in present:  # else that is another store, whose removal takes this one with it
                with contextlib.suppress(ThreefsError):  # the next start tries again
                    await self._disk.remove_directory(self._directory / whole)

    @property
    def held(self) -> list[TargetId]:
        """The targets that have a store here, or had one that may come back, which does not know, or may not know, that
        their chain goes on without them."""
        return [*map(TargetId, self.by_id), *self._unopened, *self.unnamed.untold, *self.unnamed.moved_away]

    async def open_added(self, routing: Routing, *, members_only: bool = False) -> bool:
        """Open the targets that are not open: those that moves have brought to this node, also those that have left
        their chain since, for their stores to be deleted; unless only members are wanted, and what could not be opened
        before. Returns whether there was one. One that cannot be opened is tried again later."""
        self.set_unopened_aside(routing)
        named = [routing.targets[target] for target in self._deleted if target in routing.targets]
        self._deleted = {target.target_id for target in named if routing.is_removed(target)}
        missing = self._missing(routing)
        if members_only:
            missing = [t for t in missing if t.target_id in self._unopened or not routing.is_removed(t)]
        return await self._open_all(missing, routing)

    async def open_again(self, routing: Routing) -> None:
        """Try those again that could not be opened."""
        await self._open_all([t for t in self._missing(routing) if t.target_id in self._unopened], routing)

    async def _open_all(self, missing: Sequence[RoutedTarget], routing: Routing) -> bool:
        opened = False
        for target in missing:
            if self._is_resting(target, routing):  # since another one has just failed slowly
                continue
            begun_at = self._clock.monotonic()
            try:
                await self._open_target(target, routing)
                opened = True
            except ThreefsError as error:
                self._unopened.note(target, error, begun_at, self._clock.monotonic())
        return opened

    async def make_room(self, newest: Callable[[], Routing]) -> bool:
        """If new stores find no room, delete the damaged ones in quarantine that they replace. One stays where others
        served last, and no one serves. Returns whether one is deleted."""

        def is_needed(target: RoutedTarget) -> bool:
            chain = newest().chains.get(target.chain_id)
            is_last = chain is None or not set(chain.serving) - {target.target_id}
            return is_last or target.target_id not in self._unopened

        dropped = []
        for target in self._unopened.without_room:
            with contextlib.suppress(ThreefsError):  # the disk may answer next time
                if await self._damaged.drop(target.target_id, partial(is_needed, target)):
                    self._unopened.end_rest(target.target_id)
                    dropped.append(target)
        return bool(dropped)

    def set_unopened_aside(self, routing: Routing) -> None:
        """Leave stores that cannot be opened, and whose targets the manager does not know, as they are."""
        for target in self._unopened.pop_unknown(routing):
            self.unnamed.add(manager_pb2.Store(target_id=target))

    async def delete(self, target: Target) -> None:
        """Close the store of a target that was taken out of its chain for good, and delete what it keeps. Until that is
        done the target is reported as it was: the manager forgets a target that is not reported, and so could have
        another store made in the same place."""
        self._deleting[target.target_id] = store_of(target), report_of(target)
        del self.by_id[target.target_id]
        with contextlib.suppress(ThreefsError):  # a store that has failed may fail to close
            await target.engine.close()
        directory = self._directory / f"target-{target.target_id}"
        await self._remove(directory)
        await self._remove(place_of(directory))  # nothing of its chain is lost, else no member would go
        self._deleted.add(target.target_id)
        del self._deleting[target.target_id]
        _LOG.info("a target that has moved away is deleted", target=target.target_id)

    async def drop_quarantined(self) -> None:
        """Give the room of damaged stores back to the disk. Those stay that may have what no target that serves has,
        and those that cannot be deleted. Raises what the disk fails with when it is looked at."""
        for target in list(self):
            await self._damaged.drop(target.target_id, partial(self._needs_quarantined, target))

    def _needs_quarantined(self, target: Target) -> bool:
        serves_alone = len(target.chain.serving) == target.serving
        return serves_alone or self.by_id.get(target.target_id) is not target

    async def _remove(self, directory: Path) -> None:
        """Try again while the disk fails: nobody else gives its room back, and the manager would not forget it."""
        while True:
            try:
                await self._disk.remove_directory(directory)
                return
            except ThreefsError as error:
                _LOG.warning("what has moved away cannot be deleted yet", directory=str(directory), error=str(error))
            await self._clock.sleep(_REMOVAL_PAUSE_S)

    async def set_aside(self, target: Target) -> None:
        """Close the store of a target that the cluster does not know, or did not know, and leave it on the disk."""
        self.unnamed.add(store_of(target))
        del self.by_id[target.target_id]
        await unknown_stores.mark(target.engine)
        with contextlib.suppress(ThreefsError):  # a store that has failed may fail to close
            await target.engine.close()
        _LOG.error("a target that the manager does not know is kept on the disk, closed", target=target.target_id)

    async def reopen(self, target: Target) -> None:
        """Open the store of a target that has left its chain again. Raises NoSpace, DiskFailed, Unavailable,
        Corrupt."""
        target.reopening = target.is_closed = True
        try:
            with contextlib.suppress(ThreefsError):  # a store that has failed may fail to close
                await target.engine.close()
            engine = await self._engine(target.target_id, target.chain, lambda: target.is_out_of_service)
            target.attach_engine(engine)
            target.replaces_damaged |= target.target_id in self._damaged.replaced
        except (Corrupt, DiskFailed, Unavailable) as error:
            if not is_exhaustion(error):
                target.engine.fail(error, even_closed=True)
            raise
        finally:
            target.reopening = False
        self._note_disk(target)
        if (failure := target.engine.failure) is not None:
            raise type(failure)(failure.message)
        self.readmit(target)

    def readmit(self, target: Target) -> None:
        """A target that has left its chain takes leases again."""
        self._grant_epoch += 1  # a heartbeat from before it left must not grant it a lease now
        target.full = target.exhausted = target.leaving = False
        target.apply_chain(target.chain)

    def _disk_failed(self, disk: str, error: ThreefsError) -> None:
        """Fail all targets on that disk. A damaged table is no failure of the disk, nor one that found no descriptors:
        the other targets go on."""
        if isinstance(error, Corrupt) or is_exhaustion(error) or disk in self._failed_disks:
            return
        self._failed_disks[disk] = error
        for target in self:
            self._note_disk(target)

    def _note_disk(self, target: Target) -> None:
        """Fail a target whose disk has failed: another one may have met that while its store was closed."""
        error = self._failed_disks.get(target.engine.space().disk)
        if error is not None:
            target.engine.fail(error, even_closed=True)

    async def _engine(self, target_id: TargetId, chain: Chain, is_out_of_service: Callable[[], bool]) -> ChunkEngine:
        """Open a store, or the one that replaces it."""
        return await self._damaged.open_or_replace(
            target_id,
            chain,
            self._open_engine,
            lambda: is_out_of_service() or self._heard.is_out_of_service(target_id),
        )

    async def _open_engine(self, directory: Path) -> ChunkEngine:
        engine = await ChunkEngine.open(
            directory,
            self._disk,
            self._settings,
            memory=self._memory,
            random=self._random,
            open_table=self._open_table,
        )
        engine.adopt(self._settings)  # others may have come meanwhile
        engine.on_no_room = partial(self._make_room, engine)
        return engine

    async def _make_room(self, asking: ChunkEngine, least_bytes: int) -> None:
        """Have the other targets give their free blocks back to the disk at once, and not only after a while; none if
        less than `least_bytes` would be free then. Clients of these targets could miss them: below its reserve the disk
        gives none back to them."""
        async with self._making_room:  # others that ask meanwhile wait for the same room
            own = asking.space()
            giving = [target.engine for target in self if target.engine.failure is None and not target.is_closed]
            reusable = {engine: engine.space().reusable_bytes for engine in giving}
            others = [engine for engine in reusable if reusable[engine] > own.reusable_bytes]  # else it has as much
            if own.free_bytes + sum(reusable[engine] for engine in others) < least_bytes:
                return
            for engine in others:
                with contextlib.suppress(ThreefsError):  # the asking one finds out whether there is room
                    await engine.release_free()

    async def keep_chains(self, routing: Routing) -> None:
        """Store the chain versions of that routing durably, before the targets act in them. A target that is leaving
        serves nothing until it knows a newer chain version than these."""
        staying = [target for target in self if not target.leaving]
        await asyncio.gather(*(kept_version.save(t.engine, t.target_id, t.chain.chain_id, routing) for t in staying))

    def apply_routing(self, routing: Routing) -> list[Target]:
        """Take over newer chain versions. Returns the targets whose chain has changed."""
        changed = []
        minimums = routing.minimums()
        self._unheard_s = target_unheard_s(routing.lease_s)
        for target in self:
            target.min_replicas = minimums.get(target.chain.chain_id, 1)
            chain = routing.chains[target.chain.chain_id]
            newest = max(chain, target.chain, key=lambda one: one.version)
            gave_way = target.gives_way
            target.was_unknown |= target.target_id not in routing.targets
            target.held = routing.yields(target.target_id, newest, target.min_replicas)
            target.is_out_of_service = routing.is_out_of_service(target.target_id)
            if chain.version > target.chain.version:
                target.apply_chain(chain)
                changed.append(target)
            elif target.gives_way:
                target.end_lease()  # the minimum of replicas was lowered
            if target.gives_way:
                self._grant_epoch += 1  # a heartbeat from before must not grant it a lease now
                if not gave_way:
                    target.report()
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
        """Call this when a heartbeat is sent, and the returned function with the leases that its answer grants. It
        grants nothing if leases were given up since: the manager may have acted on that. Nor does it where the lease
        has lapsed since: the manager was told that it had not."""
        opened_in = self._grant_epoch
        lapsed = {target.target_id for target in self if target.lease_lapsed}

        def grant(targets: Iterable[int], until: float) -> None:
            if opened_in != self._grant_epoch:
                return
            for target_id in targets:
                target = self.by_id.get(target_id)
                if target is None or target.leaving or target.gives_way:
                    continue
                if target.lease_lapsed and target_id not in lapsed:
                    target.report()
                    continue
                target.leased_until = max(target.leased_until, until)
                target.in_chain_until = target.leased_until + self._unheard_s
                if target.was_unknown:
                    unknown_stores.unmark(target.engine)
                    target.was_unknown = False

        return grant

    def yield_leases(self) -> None:
        """Give all leases up, until a heartbeat is acknowledged that was sent after this."""
        self._grant_epoch += 1
        for target in self:
            target.leased_until = -math.inf

    def end_leases(self) -> None:
        """Give all leases up: the manager takes this process for dead, and chains may have gone on without it."""
        self._grant_epoch += 1
        for target in self:
            target.end_lease()

    def leave(self) -> None:
        """Give all leases up for good."""
        for target in self:
            target.leave()

    def stores(self) -> list[manager_pb2.Store]:
        """The identities of the stores, for the registration."""
        return [*map(store_of, self), *(store for store, _ in self._deleting.values()), *self._unopened.stores()]

    def reports(self) -> list[manager_pb2.TargetReport]:
        """The states of the targets, for the heartbeat. A failed target gives its lease up before it is reported
        (R9)."""
        for target in self:
            if target.has_failed:
                target.leave()
        deleting = (report for _, report in self._deleting.values())
        return [*map(report_of, self), *deleting, *self._unopened.reports(self._damaged.replaced)]

    async def close(self) -> None:
        """Close all stores, also when one of them fails to close."""
        for target in self:
            try:
                await target.engine.close()
            except ThreefsError as error:
                _LOG.warning("a store cannot be closed", target=target.target_id, error=error.message)


def store_of(target: Target) -> manager_pb2.Store:
    """The identity of its store, and the version of its chain that it keeps."""
    engine = target.engine
    return manager_pb2.Store(target_id=target.target_id, store_id=engine.store_id, kept=kept_version.load(engine))


def report_of(target: Target) -> manager_pb2.TargetReport:
    """The state of a target, as heartbeats and metrics show it."""
    space = target.engine.space()
    synced, to_sync = target.resync_counts
    failure = target.engine.failure or target.engine.read_only or (_EXHAUSTED if target.exhausted else None)
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
        scrubbing=target.scrubbing,
        pass_chunks=target.pass_chunks,
        unscrubbed_ms=round(target.unscrubbed_s * 1000),
        scrub_interval_ms=round(target.scrub_interval_s * 1000),
        sync_progress=target.sync_progress,
        lost_chunks=len(target.engine.lost_chunks),
        replaces_damaged=target.replaces_damaged,
        lease_lapsed=target.lease_lapsed,
        read_only=(target.full and not target.has_failed) or target.engine.read_only is not None,
        failure=failure.message[:MAX_FAILURE_CHARS] if failure is not None else "",
    )
