"""Rates of metadata operations through the client library: many calls in flight, and many names in one call.

Each result has the CPU time of an operation in the client and in the meta services, which varies less than the rate
on a machine with other load.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import threefs_client
from threefs_cli.cluster_file import Plan
from threefs_cli.local_cluster import LocalCluster

from threefs.env.clock import CLOCK
from threefs.errors import ThreefsError
from threefs_bench.cost_meter import process_cpu_s

SECONDS = 3.0
IN_FLIGHT = 64
PER_CALL = 1024  # names in a call of many
_CALLS_IN_FLIGHT = 2
_FILES = 4096  # that are looked at


@dataclass(frozen=True, slots=True)
class Figure:
    what: str
    in_flight: int  # calls
    operations: int
    per_s: float
    client_us: float  # CPU time per operation of this process
    server_us: float  # CPU time per operation of the meta services; 0 if they are not known


Step = Callable[[], Awaitable[int]]  # how many operations it was


async def measure_fresh(directory: Path, *, seconds: float = SECONDS, in_flight: int = IN_FLIGHT) -> list[Figure]:
    """Measure a new cluster in `directory`, with one meta service on the embedded engine; it is stopped afterwards."""
    cluster = LocalCluster(directory)
    started = await cluster.up(Plan(storage=3, replicas=3))
    process = started.program("meta").process
    assert process is not None, "it was started"
    try:
        return await measure(started.address, meta_pids=[process.pid], seconds=seconds, in_flight=in_flight)
    finally:
        await cluster.down()


async def measure(
    address: str, *, meta_pids: Sequence[int] = (), seconds: float = SECONDS, in_flight: int = IN_FLIGHT
) -> list[Figure]:
    """Measure the cluster at `address`. `meta_pids`: processes of its meta services, if they run on this machine."""
    async with await threefs_client.connect_async(address, timeout_s=60.0) as fs:
        top = f"/bench-meta-{os.getpid()}"
        await fs.mkdir(top)
        try:
            bench = _Bench(fs, top, meta_pids, seconds)
            return await bench.run(in_flight)
        finally:
            await fs.remove(top, recursive=True)


class _Bench:
    def __init__(self, fs: threefs_client.AsyncFileSystem, top: str, meta_pids: Sequence[int], seconds: float) -> None:
        self._fs = fs
        self._top = top
        self._meta_pids = meta_pids
        self._seconds = seconds

    async def run(self, in_flight: int) -> list[Figure]:
        fs, top = self._fs, self._top
        seen = [f"{top}/seen/{number}" for number in range(_FILES)]
        _raise_first_error(await fs.create_many(seen, parents=True))
        for name in ("single", "many"):
            await fs.mkdir(f"{top}/{name}")
        single, many = _numbered(f"{top}/single/"), _numbered(f"{top}/many/")
        looked = _repeat(seen)

        async def create() -> int:
            await fs.create(next(single))
            return 1

        async def stat() -> int:
            await fs.stat(next(looked))
            return 1

        async def stat_many() -> int:
            found = await fs.stat_many([next(looked) for _ in range(PER_CALL)])
            assert all(found)
            return PER_CALL

        async def create_many() -> int:
            _raise_first_error(await fs.create_many([next(many) for _ in range(PER_CALL)]))
            return PER_CALL

        async def list_all() -> int:
            return sum([1 async for _ in fs.list(f"{top}/seen", with_attributes=True)])

        figures = [
            await self._figure("create", in_flight, create),
            await self._figure("stat", in_flight, stat),
            await self._figure("stat, many in a call", _CALLS_IN_FLIGHT, stat_many),
            await self._figure("create, many in a call", _CALLS_IN_FLIGHT, create_many),
            await self._figure("list with attributes", 1, list_all),
        ]
        made, gone = next(single), _numbered(f"{top}/single/")

        async def remove() -> int:
            await fs.unlink(next(gone))
            return 1

        operations = int(made.rpartition("/")[2])
        return [*figures, await self._figure("remove", in_flight, remove, limit=operations)]

    async def _figure(self, what: str, in_flight: int, step: Step, *, limit: int = 1 << 62) -> Figure:
        started = done = 0
        client, server = process_cpu_s(os.getpid()), sum(map(process_cpu_s, self._meta_pids))
        start = CLOCK.monotonic()
        end = start + self._seconds

        async def work() -> None:
            nonlocal started, done
            while started < limit and (not started or CLOCK.monotonic() < end):
                started += 1
                operations = await step()  # `done +=` must not span the await: other workers change it
                done += operations

        await asyncio.gather(*(work() for _ in range(in_flight)))
        elapsed = CLOCK.monotonic() - start
        client_s = process_cpu_s(os.getpid()) - client
        server_s = sum(map(process_cpu_s, self._meta_pids)) - server
        return Figure(what, in_flight, done, done / elapsed, client_s / done * 1e6, server_s / done * 1e6)


def _numbered(prefix: str) -> Iterator[str]:
    return (f"{prefix}{number}" for number in count())


def _repeat(names: Sequence[str]) -> Iterator[str]:
    while True:
        yield from names


def _raise_first_error(outcomes: Sequence[object]) -> None:
    """Raise the first error among them."""
    for outcome in outcomes:
        if isinstance(outcome, ThreefsError):
            raise outcome
