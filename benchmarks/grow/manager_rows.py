"""What a manager costs that thousands of storage processes send heartbeats to, and ask for the routing."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop
from threefs_bench.cost_meter import process_cpu_s, resident_bytes
from threefs_cli import processes
from threefs_manager.placement.chain_assignment import target_id
from threefs_manager.placement.plan import Disk

from benchmarks.grow import manager_store
from benchmarks.grow.beating_processes import BeatingProcess, Counts
from benchmarks.grow.run_plan import Run
from benchmarks.measurements import MIB, Measurements
from threefs.cluster.registration import HEARTBEATS_PER_T
from threefs.env.clock import CLOCK
from threefs.env.net import RealNet
from threefs.env.random import RANDOM
from threefs.ids import NodeId
from threefs.routing import FIRST_TABLE
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.handshake import Identity
from threefs.rpc.methods import SET_MIN_REPLICAS
from threefs.wire import manager_pb2 as pb

LEASE_S = 10.0  # as a manager has it by default
_START_S = 120.0
_SETTLE_S = 600.0  # of the load, which has one core, more than of the manager
_POLL_S = 0.05
_CALL_S = 60.0
_OPENED_AT_ONCE = 64  # connections
_SNAPSHOTS_AT_ONCE = 16  # each has megabytes, and the load has one core to read them


@dataclass(frozen=True, slots=True)
class _Manager:
    address: str
    pid: int


def measure(run: Run, found: Measurements) -> None:
    uvloop.run(_measure(run, found))


async def _measure(run: Run, found: Measurements) -> None:
    size, cluster_id = run.size, RANDOM.token(16).hex()
    disks = [Disk(NodeId(number + 1), f"machine-{number // size.disks}") for number in range(run.processes)]
    place = run.scratch / "manager"
    place.mkdir()
    await manager_store.make(place / "data", disks, size.targets_per_disk, cluster_id, LEASE_S)
    counts = Counts()
    async with _manager(place) as manager:
        beating = [
            BeatingProcess(
                manager.address,
                cluster_id,
                disk.node_id,
                [target_id(disk.node_id, number + 1) for number in range(size.targets_per_disk)],
                LEASE_S,
                counts,
            )
            for disk in disks
        ]
        try:
            await _start(beating)
            await _settle(beating, counts, run)
            await _load(run, found, manager, cluster_id, counts)
        finally:
            await asyncio.gather(*(one.stop() for one in beating))


async def _start(beating: Sequence[BeatingProcess]) -> None:
    """All connect at first, which heartbeats would slow down. One of which nothing is heard for T after the start is
    dead, and comes back as one that was started again."""
    opening, half_s = asyncio.Semaphore(_OPENED_AT_ONCE), time.monotonic() + LEASE_S / 2

    async def open_one(one: BeatingProcess) -> None:
        async with opening:
            await one.connect()
        first_s = half_s - time.monotonic() - RANDOM.uniform(0.0, LEASE_S / HEARTBEATS_PER_T)
        one.start(max(0.0, first_s))

    await asyncio.gather(*map(open_one, beating))
    snapshots = asyncio.Semaphore(_SNAPSHOTS_AT_ONCE)
    for one in beating:
        one.follow_routing(snapshots)


async def _settle(beating: Sequence[BeatingProcess], counts: Counts, run: Run) -> None:
    """Until each process has the routing and leases for all its targets, and has been heard of twice on average."""
    deadline_s = time.monotonic() + _SETTLE_S
    while counts.heartbeats < 2 * run.processes or not all(one.is_settled for one in beating):
        if time.monotonic() > deadline_s:
            late, failure = sum(not one.is_settled for one in beating), (counts.failures or ["no call has failed"])[-1]
            raise OSError(f"the manager does not keep up: {late} processes lack leases or the routing; {failure}")
        await CLOCK.sleep(_POLL_S)
    run.tell(f"{run.processes} processes beat, and have {counts.routing_bytes / counts.routings:,.0f} bytes of routing")


async def _load(run: Run, found: Measurements, manager: _Manager, cluster_id: str, counts: Counts) -> None:
    heard, leased, sent = counts.heartbeats, counts.leased, counts.routings + counts.changes
    failed = len(counts.failures)
    cpu_s, begin_s = process_cpu_s(manager.pid), time.monotonic()
    pool = ConnectionPool(RealNet(), Identity(cluster_id, RANDOM.token(16).hex()))
    for change in range(run.size.routing_changes):
        await CLOCK.sleep(run.size.manager_s / (run.size.routing_changes + 1))
        request = pb.SetMinReplicasRequest(table_id=FIRST_TABLE, min_replicas=1 + change % 2)
        await pool.call(manager.address, SET_MIN_REPLICAS, request, timeout_s=_CALL_S)
    await pool.close()
    await CLOCK.sleep(max(0.0, begin_s + run.size.manager_s - time.monotonic()))
    while counts.routings + counts.changes - sent < run.processes * run.size.routing_changes:
        if len(counts.failures) > failed:
            break
        await CLOCK.sleep(_POLL_S)
    seconds = time.monotonic() - begin_s
    for name, value in {
        "manager_core_share": (process_cpu_s(manager.pid) - cpu_s) / seconds,
        "manager_processes": run.processes,
        "manager_targets": run.processes * run.size.targets_per_disk,
        "manager_s": seconds,
        "manager_heartbeats_per_s": (counts.heartbeats - heard) / seconds,
        "manager_routing_changes": run.size.routing_changes,
        "manager_routing_bytes": counts.routing_bytes / counts.routings,
        "manager_change_bytes": counts.change_bytes / max(1, counts.changes),
        "manager_resident_mib": resident_bytes(manager.pid) / MIB,
        "manager_refused_answers": counts.refused,
        "manager_failures": len(counts.failures) - failed,
        "manager_leases_missing": (counts.heartbeats - heard) * run.size.targets_per_disk - (counts.leased - leased),
    }.items():
        found.add_number(name, value)
    for failure in counts.failures[failed : failed + 3]:
        run.tell(failure)


@asynccontextmanager
async def _manager(place: Path) -> AsyncIterator[_Manager]:
    settings, output, log = place / "settings.toml", place / "ready", place / "log"
    settings.write_text(f'data_dir = "{place / "data"}"\nport = 0\ncontrol_port = 0\nlease_s = {LEASE_S}\n')
    command = [sys.executable, "-m", "threefs_manager", "--settings", str(settings)]
    process = processes.start(command, output=output, log=log, environment=os.environ)
    try:
        yield _Manager(await _address(process, output, log), process.pid)
    finally:
        processes.send(process, signal.SIGKILL)
        while processes.alive(process):
            await CLOCK.sleep(_POLL_S)


async def _address(process: processes.Process, output: Path, log: Path) -> str:
    deadline_s = time.monotonic() + _START_S
    while not (line := output.read_text().split()) or line[0] != "ready":
        if not processes.alive(process) or time.monotonic() > deadline_s:
            raise OSError(processes.failure("the manager", log))
        await CLOCK.sleep(_POLL_S)
    return line[1]
