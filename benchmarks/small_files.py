"""What a small file costs, by each way to write one: in turns, on one cluster of three processes with three copies.

    python benchmarks/small_files.py --files 2000 --rounds 3 --json small.json

The ways are an open file (create, write, close), a temporary name that is renamed (as programs do to replace a file in
one step), `write_file`, `write_many`, and a mount (where there is /dev/fuse). It prints a Markdown table of medians:
files per second, and processor seconds of client and services per 1,000 files.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import threefs_client
from threefs_bench.mount_comparison import mounted
from threefs_cli.cluster_file import Plan
from threefs_cli.local_cluster import LocalCluster
from threefs_client import AsyncFileSystem

from threefs.env.clock import CLOCK

_MANY = 64  # files of one `write_many`

#: Writes the file at that path.
Write = Callable[[AsyncFileSystem, str, bytes], Awaitable[None]]


async def _write_open(fs: AsyncFileSystem, path: str, data: bytes) -> None:
    async with await fs.open(path, "xb") as file:
        await file.write(data)


async def _write_renamed(fs: AsyncFileSystem, path: str, data: bytes) -> None:
    await _write_open(fs, f"{path}.new", data)
    await fs.rename(f"{path}.new", path)


async def _write_whole(fs: AsyncFileSystem, path: str, data: bytes) -> None:
    await fs.write_file(path, data)


WAYS: dict[str, Write] = {"open": _write_open, "renamed": _write_renamed, "write_file": _write_whole}


def _cpu_s(place: str) -> float:
    """Of this program and of all programs that work in `place`: the services and the mount."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.name == str(os.getpid()) or place.encode() in (process / "cmdline").read_bytes():
                fields = (process / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class Measured:
    def __init__(self, place: str) -> None:
        self._place = place
        self.rates: dict[str, list[float]] = {}
        self.costs: dict[str, list[float]] = {}

    @contextlib.contextmanager
    def of(self, name: str, files: int) -> Iterator[None]:
        begin_s, cpu_s = CLOCK.monotonic(), _cpu_s(self._place)
        yield
        self.rates.setdefault(name, []).append(files / (CLOCK.monotonic() - begin_s))
        self.costs.setdefault(name, []).append((_cpu_s(self._place) - cpu_s) / files * 1000)

    def table(self) -> str:
        lines = ["| way | files/s | CPU s per 1,000 |", "|---|---:|---:|"]
        for name, rates in self.rates.items():
            cost = statistics.median(self.costs[name])
            lines.append(f"| {name} | {statistics.median(rates):,.0f} | {cost:.2f} |")
        return "\n".join(lines)


async def _measure_way(fs: AsyncFileSystem, write: Write, top: str, files: int, at_once: int, data: bytes) -> None:
    numbers = iter(range(files))

    async def worker() -> None:
        for number in numbers:
            await write(fs, f"{top}/{number}", data)

    await asyncio.gather(*(worker() for _ in range(at_once)))


async def _round(fs: AsyncFileSystem, found: Measured, top: str, files: int, data: bytes) -> None:
    await fs.mkdir(top)
    for at_once in (1, 16):
        for name, write in WAYS.items():
            place = f"{top}/{name}-{at_once}"
            await fs.mkdir(place)
            with found.of(f"write {name}, {at_once} at a time", files):
                await _measure_way(fs, write, place, files, at_once, data)
            with found.of(f"read_file, {at_once} at a time", files):
                await _measure_way(fs, _read, place, files, at_once, data)
    await fs.mkdir(f"{top}/many")
    pairs = [(f"{top}/many/{number}", data) for number in range(files)]
    with found.of(f"write_many of {_MANY}", files):
        for start in range(0, files, _MANY):
            assert not any(await fs.write_many(pairs[start : start + _MANY]))


async def _read(fs: AsyncFileSystem, path: str, data: bytes) -> None:
    assert await fs.read_file(path) == data


def _round_on_mount(point: Path, found: Measured, top: str, files: int, data: bytes) -> None:
    os.mkdir(point / top)
    for at_once in (1, 4):
        place = point / top / f"at-{at_once}"
        os.mkdir(place)
        with found.of(f"mount: write, {at_once} programs", files):
            _in_threads(at_once, files, lambda number, place=place: _put(place / str(number), data))  # type: ignore[misc]
        with found.of(f"mount: read, {at_once} programs", files):
            _in_threads(at_once, files, lambda number, place=place: _get(place / str(number), data))  # type: ignore[misc]


def _in_threads(count: int, files: int, work: Callable[[int], None]) -> None:
    def run(first: int) -> None:
        for number in range(first, files, count):
            work(number)

    threads = [threading.Thread(target=run, args=(first,)) for first in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _put(path: Path, data: bytes) -> None:
    with open(path, "xb", buffering=0) as file:
        file.write(data)


def _get(path: Path, data: bytes) -> None:
    with open(path, "rb", buffering=0) as file:
        assert file.read(len(data) + 1) == data


@contextlib.asynccontextmanager
async def _cluster(place: Path) -> AsyncIterator[str]:
    cluster = LocalCluster(place / "cluster")
    try:
        yield (await cluster.up(Plan(storage=3, replicas=3))).address
    finally:
        await cluster.down()


async def _measure(place: Path, args: argparse.Namespace) -> Measured:
    found = Measured(str(place))
    data = os.urandom(args.bytes)
    async with _cluster(place) as address, await threefs_client.connect_async(address) as fs:
        for number in range(args.rounds):
            await _round(fs, found, f"/round-{number}", args.files, data)
        if os.path.exists("/dev/fuse") and not args.no_mount:
            with mounted(address, place / "mnt"):
                for number in range(args.rounds):
                    await asyncio.to_thread(_round_on_mount, place / "mnt", found, f"mount-{number}", args.files, data)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--bytes", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-mount", action="store_true")
    parser.add_argument("--json", type=Path, help="write all rounds there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="threefs-small-") as place:
        found = asyncio.run(_measure(Path(place), args))
    print(found.table())
    print(f"\nload average at the end: {os.getloadavg()[0]:.1f}", file=sys.stderr)
    if args.json:
        args.json.write_text(json.dumps({"rates": found.rates, "cpu_s_per_1000": found.costs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
