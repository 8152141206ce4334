"""Background work that goes on for as long as its process lives (I19): what each process must be doing at any time.

A task is known by the function that it runs, wherever in its chain of awaits that is.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any

from threefs_manager.chains.controller import ChainController
from threefs_manager.election import Election
from threefs_manager.service import Manager
from threefs_meta.garbage_collector import GarbageCollector
from threefs_meta.lease.lease_reaper import LeaseReaper
from threefs_meta.lease.logical_clock import LogicalClock
from threefs_meta.node import MetaNode
from threefs_meta.orphan_collector import OrphanCollector
from threefs_meta.quota.aggregator import UsageAggregator
from threefs_meta.store.identity import StoreIdentity
from threefs_storage.chain.fold_scheduler import FoldScheduler
from threefs_storage.chain.pending_recovery import PendingRecovery
from threefs_storage.chain.tombstone_collector import TombstoneCollector
from threefs_storage.health.chunk_repair import Repair
from threefs_storage.health.scrubber import Scrubber
from threefs_storage.health.target_recovery import TargetRecovery
from threefs_storage.node import StorageNode
from threefs_storage.peer_reachability import PeerReachability
from threefs_storage.scheduling.space_release import SpaceRelease

from tests.sim.world import LEASE_S, World
from threefs.cluster.registration import Registration
from threefs.cluster.routing_watcher import RoutingWatcher

Work = Callable[..., Any]
_TAKE_OVER_S = 2 * LEASE_S  # after a quarter of T
_LOOK_S = 0.05


def missing(world: World, clients: Iterable[str]) -> list[str]:
    """What services that have not been killed, and these clients, do not do, though they should."""
    hosts = [*world.managers, *world.storages, *world.metas, *clients, *world.file_hosts, *world.locker_hosts]
    return [missed for host in hosts if host in world.processes for missed in missing_at(world, host)]


def missing_at(world: World, host: str) -> Iterator[str]:
    process = world.processes[host]
    if not process.running:
        yield f"{process.name} has ended (I19)"
        return
    doing = Counter(code for task in world.loop.unfinished(process) for code in _codes(task))
    for work, times in Counter(_work(world, host)).items():
        if doing[work.__code__] < times:
            yield f"{host} should have tasks that do {work.__qualname__}: {times}, not {doing[work.__code__]} (I19)"


async def idle_standbys(world: World) -> list[str]:
    """The primary manager is killed, again and again until one is left. Those that do not take over."""
    while len(world.managers) > 1:
        gone = world.primary()
        assert gone is not None, "the cluster is well"
        world.kill(gone)
        until = world.loop.time() + _TAKE_OVER_S
        while world.primary() is None:
            if world.loop.time() > until:
                return [f"{' and '.join(world.managers)} do not take over from {gone} (I19)"]
            await asyncio.sleep(_LOOK_S)
    return []


def _work(world: World, host: str) -> Iterator[Work]:
    """Looked up at each call: a planted bug puts other functions into these classes."""
    if host in world.managers:
        yield Manager.run
        if world.managers[host].leading.is_set():
            yield from (Manager._lead, ChainController.run, Election.keep_renewing)
        else:
            yield Election.campaign
    elif host in world.metas:
        yield from (MetaNode._sample, StoreIdentity.run, Registration._send_heartbeats, RoutingWatcher._follow)
        yield from (LogicalClock.run, UsageAggregator._run, GarbageCollector._run, OrphanCollector._run)
        yield from (LeaseReaper._run, LeaseReaper._run)  # one ends leases, one releases
    elif host in world.storages:
        yield from (StorageNode._stay_present, Registration._send_heartbeats, RoutingWatcher._follow)
        yield from (TargetRecovery._run, PendingRecovery._drop_early, TombstoneCollector._run, FoldScheduler._run)
        yield from (SpaceRelease._run, PeerReachability._run, Scrubber._run)
        for _ in world.storages[host].targets:
            yield from (Repair._run, PendingRecovery._run)
    else:
        yield RoutingWatcher._follow


def _codes(task: "asyncio.Task[Any]") -> Iterator[CodeType]:
    """Of the coroutines of a task, from its own to the innermost one that it waits in."""
    coroutine: Any = task.get_coro()
    while (code := getattr(coroutine, "cr_code", None)) is not None:
        yield code
        coroutine = coroutine.cr_await
