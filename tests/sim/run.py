"""One run of a seed: faults under load (safety), then none any more (liveness), then the audit."""

import asyncio
import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from threefs_meta.resolve.resolver import TURNS
from threefs_storage.chain.pending_recovery import EARLY_S

from tests.harness.history import History
from tests.harness.linearizability import Undecided, violations
from tests.harness.reported_order import explains
from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.loop import BEGIN_S, PROCESS, Deadlock, OutOfTime
from tests.sim import (
    audit,
    configuration_changes,
    emptied_disks,
    failed_links,
    full_syncing,
    intruders,
    known_routing,
    leak_audit,
    live_tasks,
    local_store,
    lock_holders_asleep,
    managers_asleep,
    moving_members,
    removed_nodes,
    run_shape,
    scarce_memory,
    small_disks,
    store_faults,
    strange_disks,
    visitors,
)
from tests.sim.accepted_losses import AcceptedLoss
from tests.sim.administrator import moves_left
from tests.sim.faults import Faults, Step, draw
from tests.sim.files import Files, namespace
from tests.sim.lockers import Lockers
from tests.sim.workload import Load, Workload
from tests.sim.world import LEASE_S, SCRUB_S, Size, World
from threefs.env.buffers import POISON_VARIABLE
from threefs.errors import ThreefsError
from threefs.ids import ChunkId, InodeId

os.environ[POISON_VARIABLE] = "1"  # I14: whoever uses a buffer that was given back is found out

#: I13: when faults stop, everything is well again within three lease times; a fourth for what the faults left waiting.
#: A target that is out for a failed link stays out until its hold-off has ended, and returns then.
LIVENESS_S = 4 * LEASE_S
_MOST_STEPS = 3_000_000
_MOVES_S = 40 * LEASE_S  # one after the other, to each disk
#: Of the checker, for a chunk. A crowd of writers may leave a history that would take it hours.
_CHECKER_STEPS = 100_000
_MANY_MANAGERS = 3
_MEMORY = Path("/dev/shm")


@dataclass(slots=True)
class Outcome:
    seed: object
    violations: list[str] = field(default_factory=list)
    searched: int = 0  # histories of chunks that the order of their versions does not explain
    refused: int = 0  # conversations of processes that do not know the key
    reached: dict[str, int] = field(default_factory=dict)  # bounds of storage and meta processes, and how often
    undecided: str = ""  # why the checker has no verdict on a history
    scenario: list[Step] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=dict)
    operations: int = 0
    given_up: int = 0  # operations of files, and turns of a lock
    virtual_s: float = 0.0
    steps: int = 0
    digest: int = 0  # of all moments of the run
    longest: dict[str, float] = field(default_factory=dict)


def run(
    seed: object,
    *,
    size: Size | None = None,
    load: Load | None = None,
    scenario: Sequence[Step] | None = None,
    logs: bool = False,
    shares: run_shape.Shares = run_shape.USUAL,
) -> Outcome:
    """Everything follows from the seed and the shares; a scenario takes the place of the faults that they would draw.
    With `logs`, the trace has what the processes log too."""
    directory = Path(tempfile.mkdtemp(prefix="threefs-sim-", dir=_MEMORY if _MEMORY.is_dir() else None))
    dice = SeededRandom(seed, "run")
    drawn_size, drawn_load = run_shape.draw(dice, seed, shares)
    TURNS._steps = 0  # those of the runs before this one, in the same interpreter
    world = World(seed, size or drawn_size, directory)
    outcome = Outcome(seed)
    known_routing.watch(world, outcome.violations)
    before = structlog.get_config() if structlog.is_configured() else None
    _configure_logs(world if logs else None)
    if logs:
        world.listeners.append(
            lambda host, what, chunk, facts: world.tell(f"{host} {what} {chunk.inode}/{chunk.number} {facts}")
        )
    try:
        world.loop.run(_run(world, outcome, load or drawn_load, dice, scenario), limit_s=600.0, most_steps=_MOST_STEPS)
    except (Deadlock, OutOfTime) as error:
        outcome.violations.append(f"I13: {error}")
    except AssertionError as error:
        outcome.violations.append(f"an assertion of the test failed: {error!r}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    outcome.violations += [f"a process died: {death}" for death in world.deaths]
    outcome.violations += [
        f"nobody caught: {failure}" for failure in world.loop.failures if not scarce_memory.says_so(failure)
    ]
    outcome.trace = list(world.trace)  # before the world ends, which has things to tell too
    outcome.virtual_s = world.loop.time() - BEGIN_S
    outcome.steps = world.loop.steps
    outcome.digest = world.loop.digest
    world.loop.discard()
    if before is not None:
        structlog.configure(**before)
    else:
        structlog.reset_defaults()
    return outcome


def _configure_logs(world: World | None) -> None:
    def note(logger: Any, level: str, event: Any) -> Any:
        process = PROCESS.get()
        if world is not None and process is not None:
            facts = " ".join(f"{name}={value}" for name, value in event.items() if name != "event")
            world.tell(f"{process.name} {level}: {event['event']} {facts}")
        raise structlog.DropEvent

    structlog.configure(
        processors=[note],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO if world else logging.CRITICAL),
        cache_logger_on_first_use=False,
    )


async def _run(world: World, outcome: Outcome, load: Load, dice: SeededRandom, scenario: Sequence[Step] | None) -> None:
    await world.begin()
    world.manager_kv.unknown = max(world.size.doubt, world.size.manager_doubt)
    faults, workload = Faults(world), Workload(world, load)
    files = Files(
        world,
        world.file_hosts[0],
        load.files_pause_s,
        load.files_bytes,
        whole=not load.forgets_names,
        cancels=load.cancels / 2,
    )
    lockers = Lockers(world, load.files_pause_s, load.cancels / 2)
    for begun in (workload, files, lockers):
        begun.begin()
    await asyncio.sleep(0.5)
    outcome.scenario = list(scenario) if scenario is not None else _drawn(dice, world, load)
    await faults.run(outcome.scenario)
    await asyncio.sleep(LEASE_S / 2)
    await faults.heal()
    outcome.faults = faults.counts
    outcome.violations += faults.stores.violations + faults.intruders.violations + faults.full_syncing.violations
    outcome.refused = faults.intruders.refused
    outcome.reached = dict(world.reached, connections=faults.visitors.refused, memory=faults.scarce_memory.refused)
    await _get_well(world, faults, workload, files, lockers, outcome)
    if not outcome.violations:
        outcome.violations += audit.replicas(world)
        outcome.violations += audit.damage(world)
        outcome.violations += audit.members(world)
        outcome.violations += audit.half_removed(world)
        await world.processes["c1"].start(workload.read_all("c1"))
        outcome.violations += await leak_audit.kept(world, workload.links)
        if len(world.manager_hosts) >= _MANY_MANAGERS:
            outcome.violations += await live_tasks.idle_standbys(world)
    outcome.operations += len(workload.history)
    outcome.longest = workload.longest
    _judge(workload, outcome)
    if load.losses and not outcome.violations:
        loss = AcceptedLoss(world, workload, faults)
        await loss.run()
        outcome.violations += loss.violations


def _judge(workload: Workload, outcome: Outcome) -> None:
    """I1. The cluster's own order is tried first: where it explains all that was seen, none has to be searched for."""
    told = workload.history.chunks
    orders = {name: workload.order.of(ChunkId(InodeId(int(name)), 0)) for name in told}
    unclear = {name: seen for name, seen in told.items() if not explains(seen, [seen[at] for at in orders[name]])}
    outcome.searched = len(unclear)
    try:
        outcome.violations += violations(History(unclear), _CHECKER_STEPS)
    except Undecided as error:
        outcome.undecided = str(error)


def _drawn(dice: SeededRandom, world: World, load: Load) -> list[Step]:
    steps = draw(dice, world, load.faults_s)
    if load.stores:
        for at, what, store, lasts in store_faults.draw(SeededRandom(world.seed, "stores"), load.faults_s):
            steps.append(Step(at, what, (store,), lasts))
    if load.restores:
        lost = SeededRandom(world.seed, "restores")
        names = load.stores or not world.locker_hosts  # who counts under a lock forgets nothing
        for at, what, store, lasts in store_faults.draw_restores(lost, load.faults_s, names=names):
            steps.append(Step(at, what, (store,), lasts))
    if load.intruders:
        for at, what, host, lasts in intruders.draw(SeededRandom(world.seed, "intruders"), world, load.faults_s):
            steps.append(Step(at, what, (host,), lasts))
    if load.visitors:
        for at, what, host, lasts in visitors.draw(SeededRandom(world.seed, "visitors"), world, load.faults_s):
            steps.append(Step(at, what, (host,), lasts))
    if load.absences:
        for at, host, lasts in emptied_disks.draw_absences(SeededRandom(world.seed, "absences"), world, load.faults_s):
            steps.append(Step(at, "absent", (host,), lasts))
    if load.brims:
        host = world.storage_hosts[SeededRandom(world.seed, "brims").below(len(world.storage_hosts))]
        steps.append(Step(load.faults_s, "brim", (host,), full_syncing.MOST_S))
    if load.cuts:
        for at, host, lasts in local_store.draw(SeededRandom(world.seed, "cuts"), load.faults_s):
            steps.append(Step(at, "power", (host,), lasts))
    if world.spare_hosts:
        for at, what, moved, lasts in moving_members.draw(SeededRandom(world.seed, "moves"), world, load.faults_s):
            steps.append(Step(at, what, moved, lasts))
    if world.spare_hosts and not (load.restores or load.stores):  # a backup may not have the table
        for at, what, none, lasts in moving_members.draw_tables(SeededRandom(world.seed, "table"), load.faults_s):
            steps.append(Step(at, what, none, lasts))
    if world.spare_hosts and load.removals and not (load.restores or load.stores):  # a backup may have the node
        for at, what, host, lasts in removed_nodes.draw(SeededRandom(world.seed, "removals"), world, load.faults_s):
            steps.append(Step(at, what, (host,), lasts))
    if world.size.tuned:
        for at in configuration_changes.draw(SeededRandom(world.seed, "tuned at"), load.faults_s):
            steps.append(Step(at, configuration_changes.KIND, (), 0.0))
    if load.holds:
        for at, what, held, lasts in moving_members.draw_holds(SeededRandom(world.seed, "holds"), world, load.faults_s):
            steps.append(Step(at, what, held, lasts))
    steps += _drawn_of_resources(world, load)
    for at, what, hosts, lasts in failed_links.draw(
        SeededRandom(world.seed, "links"), world.storage_hosts, load.faults_s
    ):
        steps.append(Step(at, what, hosts, lasts))
    if load.dozes:
        for at, host, lasts in lock_holders_asleep.draw(SeededRandom(world.seed, "doze"), world):
            steps.append(Step(at, "doze", (host,), lasts))
    return steps


def _drawn_of_resources(world: World, load: Load) -> list[Step]:
    """Faults of what machines lend to processes: disks, memory, time."""
    steps, length_s = [], load.faults_s
    if load.strange_disks:
        for at, what, host, lasts in strange_disks.draw(SeededRandom(world.seed, "strange"), world, length_s):
            steps.append(Step(at, what, (host,), lasts))
    if load.small_disks:
        for at, host, lasts in small_disks.draw(SeededRandom(world.seed, "small at"), world, length_s):
            steps.append(Step(at, small_disks.KIND, (host,), lasts))
    if load.swoons:
        for at, host, lasts in managers_asleep.draw(SeededRandom(world.seed, "swoon"), world, length_s):
            steps.append(Step(at, managers_asleep.KIND, (host,), lasts))
    if load.scarce_memory:
        for at, host, lasts in scarce_memory.draw(SeededRandom(world.seed, "scarce at"), world, length_s):
            steps.append(Step(at, scarce_memory.KIND, (host,), lasts))
    return steps


async def _moved(world: World, away_s: float) -> bool:
    """Whether all members get to where they are to be: a move waits for a target that is brought up to date."""
    until = world.loop.time() + _MOVES_S + away_s
    while moves_left(world):
        if world.loop.time() > until:
            return False
        await asyncio.sleep(0.1)
    return True


async def _get_well(
    world: World, faults: Faults, workload: Workload, files: Files, lockers: Lockers, outcome: Outcome
) -> None:
    await faults.configuration.settle()
    await faults.removed_nodes.settle()
    outcome.violations += faults.removed_nodes.violations
    await faults.members.settle()
    await faults.small_disks.settle()
    begin = world.loop.time()
    if world.spare_hosts:
        if not await _moved(world, faults.small_disks.away_left_s()):
            outcome.violations.append(f"I13: members still move {_MOVES_S:.0f} s after the last fault: {_state(world)}")
            return
        begin = world.loop.time()
    try:
        async with asyncio.timeout(LIVENESS_S + max(world.hold_off_left_s(), faults.small_disks.away_left_s())):
            while not world.healthy():
                await asyncio.sleep(0.05)
    except TimeoutError:
        outcome.violations.append(f"I13: not healthy {LIVENESS_S:.0f} s after the last fault: {_state(world)}")
        return
    world.tell(f"-- healthy after {world.loop.time() - begin:.3f} s")
    await faults.small_disks.take_writes()
    outcome.violations += faults.small_disks.violations
    await workload.stop(LIVENESS_S)
    await files.stop(LIVENESS_S)
    await lockers.stop(LIVENESS_S)
    outcome.violations += workload.errors + files.errors + lockers.errors + await namespace(world)
    outcome.given_up = files.given_up + lockers.given_up
    outcome.operations += files.operations + lockers.counted
    outcome.violations += await leak_audit.kept_by_meta_services(world)
    for host in world.meta_hosts:
        world.kill(host)  # else it removes chunks of deleted files while replicas are compared
    await _scrub(world)
    await asyncio.sleep(1.0 + 2 * SCRUB_S)  # what was abandoned is finished, what is rotten is found and repaired
    await _early_versions_go(world)


async def _early_versions_go(world: World) -> None:
    """Wait for the drop of early versions whose write the head has refused (P10). The audit finds those that stay."""
    until = world.loop.time() + 2 * EARLY_S + 1.0
    while any([*target.early] for node in world.storages.values() for target in node.targets):
        if world.loop.time() > until:
            return
        await asyncio.sleep(0.1)


async def _scrub(world: World) -> None:
    """Everything is looked at once now, however rarely it is otherwise."""
    for host, node in world.storages.items():
        for target in list(node.targets):  # one that has moved away may be deleted meanwhile
            with contextlib.suppress(ThreefsError):
                await world.processes[host].start(node.storage.scrubber._scrub(target))


def _state(world: World) -> str:
    routing = world.routing()
    if routing is None:
        return "no manager is primary"
    return "; ".join(
        f"chain {chain.chain_id} v{chain.version}: "
        + " ".join(f"{member.target_id}:{member.state.name.lower()}" for member in chain.members)
        for chain in routing.chains.values()
    )
