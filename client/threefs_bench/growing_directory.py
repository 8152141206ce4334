"""One directory that grows: speed of creates, and speed and memory of listings, at each size."""

import os
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import threefs_client

from threefs.env.clock import CLOCK
from threefs.env.worker_threads import ThreadWorker
from threefs.errors import Corrupt, ThreefsError
from threefs_bench.cost_meter import busy_s, process_cpu_s, resident_bytes

SIZES = (1_000, 10_000, 100_000, 1_000_000)
QUICK_SIZES = (1_000, 10_000, 100_000)
SAMPLE = 1000  # creates of one measurement, at each size
_BATCH = 4096
_LOOKUPS = 50
_TIMEOUT_S = 300.0

Progress = Callable[[str], None]


@dataclass(slots=True)
class Size:
    """Measurements at one size. CPU is that of the whole machine; memory is resident, in bytes."""

    entries: int
    creates_per_s: float  # of the last ones before this size, in batches
    create_cpu_us: float
    create_p50_ms: float  # of single creates, one at a time
    create_service_cpu_us: float = 0.0  # of the meta service alone
    lookup_ms: float = 0.0
    first_entry_ms: float = 0.0
    listed: int = 0
    list_per_s: float = 0.0
    list_client_growth_bytes: int = 0
    service_bytes: int = 0
    mount_first_entry_ms: float = 0.0  # the same through a mount, if there is one
    mount_list_per_s: float = 0.0
    mount_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Mount:
    point: Path
    process: int


async def measure(
    address: str, service: int, sizes: Sequence[int], progress: Progress, mount: Mount | None = None
) -> list[Size]:
    """Fill a directory of the cluster to each size in turn. `service` is the process of its only meta service."""
    found = []
    async with await threefs_client.connect_async(address, timeout_s=_TIMEOUT_S) as fs:
        top = f"/bench-directory-{os.getpid()}"
        await fs.mkdir(top)
        there = 0
        for entries in sizes:
            progress(f"a directory of {entries:,} entries")
            await _fill(fs, top, there, entries - SAMPLE)
            found.append(await _measure_size(fs, top, entries, service))
            if mount is not None:
                await _measure_through_mount(mount, top, found[-1])
            there = entries
        await fs.remove(top, recursive=True)  # at once; the space is freed in the background
    return found


async def _fill(fs: threefs_client.AsyncFileSystem, top: str, begin: int, end: int) -> None:
    for first in range(begin, end, _BATCH):
        await _create_files(fs, top, first, min(first + _BATCH, end))


async def _create_files(fs: threefs_client.AsyncFileSystem, top: str, begin: int, end: int) -> None:
    for made in await fs.create_many([f"{top}/{number:08}" for number in range(begin, end)], exclusive=True):
        if isinstance(made, ThreefsError):
            raise made


async def _measure_size(fs: threefs_client.AsyncFileSystem, top: str, entries: int, service: int) -> Size:
    begin, busy, own = CLOCK.monotonic(), busy_s(), process_cpu_s(service)
    await _create_files(fs, top, entries - SAMPLE, entries - _LOOKUPS)
    made = SAMPLE - _LOOKUPS
    seconds, busy, own = CLOCK.monotonic() - begin, busy_s() - busy, process_cpu_s(service) - own
    single = [
        await _timed(fs.create_many([f"{top}/{number:08}"], exclusive=True))
        for number in range(entries - _LOOKUPS, entries)
    ]
    size = Size(entries, made / seconds, busy / made * 1e6, statistics.median(single) * 1e3, own / made * 1e6)
    size.lookup_ms = 1e3 * statistics.median(
        [await _timed(fs.stat(f"{top}/{number:08}")) for number in range(0, entries, entries // _LOOKUPS)]
    )
    before = resident_bytes(os.getpid())
    most = before
    begin = CLOCK.monotonic()
    async for _ in fs.list(top):
        if not size.listed:
            size.first_entry_ms = (CLOCK.monotonic() - begin) * 1e3
        size.listed += 1
        if size.listed % 1000 == 0:
            most = max(most, resident_bytes(os.getpid()))
    size.list_per_s = size.listed / (CLOCK.monotonic() - begin)
    size.list_client_growth_bytes = most - before
    size.service_bytes = resident_bytes(service)
    return size


async def _measure_through_mount(mount: Mount, top: str, size: Size) -> None:
    """List the directory through a mount, names only, as `ls -U` does."""
    thread = ThreadWorker("scandir")
    try:
        first, all_of_it, names = await thread.run(_scan, f"{mount.point}{top}")
    finally:
        await thread.close()
    if names != size.entries:
        raise Corrupt(f"the mount lists {names} of {size.entries} names")
    size.mount_first_entry_ms = first * 1e3
    size.mount_list_per_s = names / all_of_it
    size.mount_bytes = resident_bytes(mount.process)


def _scan(directory: str) -> tuple[float, float, int]:
    """Seconds until the first entry, seconds until the last one, and how many there are."""
    names = 0
    first = 0.0
    begin = CLOCK.monotonic()
    with os.scandir(directory) as entries:
        for _ in entries:
            if not names:
                first = CLOCK.monotonic() - begin
            names += 1
    return first, CLOCK.monotonic() - begin, names


async def _timed(work: Awaitable[object]) -> float:
    begin = CLOCK.monotonic()
    await work
    return CLOCK.monotonic() - begin


def table(sizes: Sequence[Size]) -> str:
    """Markdown."""
    lines = [
        "| entries | creates/s in batches | CPU of a create, of it the service | one create "
        "| first entry of a list, a stat | entries listed/s | memory of the service "
        "| through the mount: first entry | entries listed/s | memory of the mount |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {size.entries:,} | {size.creates_per_s:,.0f} | {size.create_cpu_us:.0f} µs, "
        f"{size.create_service_cpu_us:.0f} µs | {size.create_p50_ms:.1f} ms | {size.first_entry_ms:.1f} ms, "
        f"{size.lookup_ms:.1f} ms | {size.list_per_s:,.0f} | {size.service_bytes >> 20:,} MiB "
        f"| {size.mount_first_entry_ms:.1f} ms | {size.mount_list_per_s:,.0f} | {size.mount_bytes >> 20:,} MiB |"
        for size in sizes
    ]
    return "\n".join(lines) + "\n"
