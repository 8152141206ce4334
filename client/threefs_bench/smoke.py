"""A few measurements that show whether the hot paths are healthy, each compared with a limit of the machine."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import threefs_client

from threefs.env.loopback import raw_rate
from threefs.env.worker_threads import ThreadWorker
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_bench.cost_meter import Series
from threefs_bench.disk_rate import durable_write_rate

MIB = 1 << 20
GIB = 1 << 30
ROUNDS = 5
FILE_BYTES = 256 * MIB
BATCH = 256
BATCHES = 600
BATCHES_IN_FLIGHT = 4
SMALL_BYTES = 4096
WRITES_IN_FLIGHT = 16
CREATES = 4096
CREATES_IN_FLIGHT = 64
RAW_S = 1.0

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Figures:
    """Rates in bytes or operations per second, CPU in seconds of the whole machine."""

    raw_tcp: Series
    raw_unix: Series
    disk: Series
    disk_by: str
    read_1m: Series
    read_4k: Series
    write_1m: Series
    creates: Series
    replicas: int

    def table(self) -> dict[str, float | str | int]:
        copies = self.write_1m.rate * self.replicas
        return {
            "read_1m_over_raw": self.read_1m.rate / self.raw_tcp.rate,
            "read_4k_batch_per_s": self.read_4k.rate,
            "write_1m_over_fio": copies / self.disk.rate,
            "creates_per_s": self.creates.rate,
            "read_1m_over_raw_unix": self.read_1m.rate / self.raw_unix.rate,
            "read_1m_gib_per_s": self.read_1m.rate / GIB,
            "raw_tcp_gib_per_s": self.raw_tcp.rate / GIB,
            "raw_unix_gib_per_s": self.raw_unix.rate / GIB,
            "write_1m_mib_per_s": self.write_1m.rate / MIB,
            "write_1m_all_copies_mib_per_s": copies / MIB,
            "disk_write_mib_per_s": self.disk.rate / MIB,
            "disk_write_by": self.disk_by,
            "replicas": self.replicas,
            "read_4k_batches_in_flight": BATCHES_IN_FLIGHT,
            "rounds": len(self.read_1m.rounds),
            "read_1m_cpu_s_per_gib": self.read_1m.cpu_per(GIB),
            "read_4k_cpu_s_per_1000": self.read_4k.cpu_per(1000),
            "write_1m_cpu_s_per_gib": self.write_1m.cpu_per(GIB),
            "creates_cpu_s_per_1000": self.creates.cpu_per(1000),
        }


async def measure(address: str, disk: Path, progress: Progress, *, rounds: int = ROUNDS) -> Figures:
    """Measure the cluster at `address`; `disk` is a directory on the disk that it stores on.

    The limits are measured between the rounds, so that both see the same machine.
    """
    async with await threefs_client.connect_async(address, timeout_s=60.0) as fs:
        directory = f"/bench-{os.getpid()}"
        await fs.mkdir(directory)
        try:
            return await _measure(fs, directory, disk, progress, rounds)
        finally:
            await fs.remove(directory, recursive=True)


async def _measure(
    fs: threefs_client.AsyncFileSystem, directory: str, disk: Path, progress: Progress, rounds: int
) -> Figures:
    replicas = (await fs.statfs()).replicas
    series = {name: Series() for name in ("tcp", "unix", "disk", "read_1m", "read_4k", "write_1m", "creates")}
    by = ""
    thread = ThreadWorker("limits")
    await _write(fs, f"{directory}/read", series=None)
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}")
        for name, unix in (("tcp", False), ("unix", True)):
            with series[name].round() as one:
                rate = await thread.run(partial(raw_rate, unix=unix, seconds=RAW_S))
            one.amount = rate * one.seconds
        with series["disk"].round() as one:
            rate, by = await thread.run(durable_write_rate, disk, FILE_BYTES)
        one.amount = rate * one.seconds
        await _read_large(fs, f"{directory}/read", series["read_1m"])
        await _read_small(fs, f"{directory}/read", series["read_4k"])
        await _write(fs, f"{directory}/write", series["write_1m"])
        await _create(fs, f"{directory}/creates-{number}", series["creates"])
    await thread.close()
    return Figures(
        series["tcp"],
        series["unix"],
        series["disk"],
        by,
        series["read_1m"],
        series["read_4k"],
        series["write_1m"],
        series["creates"],
        replicas,
    )


async def _write(fs: threefs_client.AsyncFileSystem, path: str, series: Series | None) -> None:
    """1 MiB writes, each durable on all replicas when it is acknowledged."""
    pieces = [memoryview(os.urandom(MIB)) for _ in range(WRITES_IN_FLIGHT)]
    async with await fs.open(path, "wb") as file:

        async def work() -> None:
            for offset in range(0, FILE_BYTES, len(pieces) * MIB):
                await fs.write_batch([(file, offset + i * MIB, piece) for i, piece in enumerate(pieces)])

        await _timed(series, work, FILE_BYTES)


async def _read_large(fs: threefs_client.AsyncFileSystem, path: str, series: Series) -> None:
    """1 MiB reads of data that the page cache has, eight at a time, into memory of the caller."""
    async with await fs.open(path, "rb") as file:
        into = memoryview(bytearray(8 * MIB))

        async def work() -> None:
            for _ in range(2):
                for offset in range(0, FILE_BYTES, len(into)):
                    await fs.read_batch([(file, offset + i * MIB, MIB) for i in range(8)], into=into)

        await work()
        await work()
        await _timed(series, work, 2 * FILE_BYTES)


async def _read_small(fs: threefs_client.AsyncFileSystem, path: str, series: Series) -> None:
    """4 KiB reads in batches, a few in flight, at places that are spread over the whole file."""
    async with await fs.open(path, "rb") as file:
        step = 7919 * SMALL_BYTES  # a prime number of blocks: every batch touches all chains

        async def batches(first: int) -> None:
            for number in range(first, BATCHES, BATCHES_IN_FLIGHT):
                at = number * BATCH * step
                await fs.read_batch([(file, (at + i * step) % FILE_BYTES, SMALL_BYTES) for i in range(BATCH)])

        async def work() -> None:
            async with asyncio.TaskGroup() as group:
                for first in range(BATCHES_IN_FLIGHT):
                    group.create_task(batches(first))

        await work()
        await _timed(series, work, BATCHES * BATCH)


async def _create(fs: threefs_client.AsyncFileSystem, directory: str, series: Series) -> None:
    """Durable creates of empty files in one directory."""
    await fs.mkdir(directory)
    waiting = iter(range(CREATES))

    async def one_after_the_other() -> None:
        for number in waiting:
            request = pb.CreateRequest(
                mutation=fs.context.meta.mutation(),
                place=pb.Place(path=f"{directory}/{number}".encode()),
                mode=0o644,
                exclusive=True,
            )
            await fs.context.meta.call(methods.CREATE, request, timeout_s=60.0)

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(CREATES_IN_FLIGHT):
                group.create_task(one_after_the_other())

    await _timed(series, work, CREATES)


async def _timed(series: Series | None, work: Callable[[], Awaitable[None]], amount: float) -> None:
    if series is None:
        await work()
        return
    with series.round() as one:
        await work()
        one.amount = amount
