"""How fast file objects stream, beside the batch calls on the same cluster.

    python benchmarks/streaming.py --rounds 3 --mib 512 --mount --json streaming.json
    python benchmarks/streaming.py --other ../before

It starts a cluster with 3 storage processes and 3 copies. In each round a process of its own writes a file and reads it
back in sequence: through the batch calls (16 rows of 1 MiB in a call), and through file objects of asyncio and of the
blocking client with calls of 64 KiB, 1 MiB and 4 MiB, and `readinto` with 1 MiB. With `--mount` it does the same with
calls of 1 MiB through a mount (the read comes from the cluster: the kernel's pages are dropped before it). With
`--other`, each round is also run by the checkout in that directory, which has a `.venv`; which of the two is first
alternates. It prints a Markdown table of medians, in MiB/s and as ratios to the batch calls of the same checkout. Needs
a machine that does nothing else.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import threefs_client
import uvloop
from threefs_cli.cluster_file import Plan
from threefs_cli.local_cluster import LocalCluster
from threefs_client import AsyncFileSystem, FileSystem
from threefs_mount import mount_process, mountpoints
from threefs_mount.options import MountOptions

KIB, MIB = 1 << 10, 1 << 20
SIZES = (64 * KIB, MIB, 4 * MIB)
_BATCH_ROWS = 16
_MOUNT_S = 60.0
_RUN_S = 900.0

Rates = dict[str, float]  # what was measured -> MiB/s
Found = dict[str, list[Rates]]  # checkout -> its rounds


# ---- what one process measures ----


class Meter:
    def __init__(self, length: int) -> None:
        self.length = length
        self.rates: Rates = {}

    @contextlib.contextmanager
    def time(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.rates[name] = self.length / (time.perf_counter() - start) / MIB


def _name(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


async def asyncio_files(fs: AsyncFileSystem, meter: Meter) -> None:
    for size in SIZES:
        data = os.urandom(size)
        path = f"/asyncio-{size}"
        with meter.time(f"write, asyncio, {_name(size)}"):
            async with await fs.open(path, "wb") as file:
                for _ in range(meter.length // size):
                    await file.write(data)
        with meter.time(f"read, asyncio, {_name(size)}"):
            async with await fs.open(path) as file:
                while await file.read(size):
                    pass
        await fs.remove(path)


async def asyncio_batches(fs: AsyncFileSystem, meter: Meter) -> None:
    data = os.urandom(MIB)
    with meter.time("write, batch"):
        async with await fs.open("/batch", "wb") as file:
            for offset in range(0, meter.length, _BATCH_ROWS * MIB):
                await fs.write_batch([(file, offset + row * MIB, data) for row in range(_BATCH_ROWS)])
    with meter.time("read, batch"):
        async with await fs.open("/batch") as file:
            for offset in range(0, meter.length, _BATCH_ROWS * MIB):
                await fs.read_batch([(file, offset + row * MIB, MIB) for row in range(_BATCH_ROWS)])


def blocking_files(fs: FileSystem, meter: Meter) -> None:
    for size in SIZES:
        data = os.urandom(size)
        path = f"/blocking-{size}"
        with meter.time(f"write, blocking, {_name(size)}"), fs.open(path, "wb") as file:
            for _ in range(meter.length // size):
                file.write(data)
        with meter.time(f"read, blocking, {_name(size)}"), fs.open(path, "rb") as file:
            while file.read(size):
                pass
        if size == MIB:
            buffer = bytearray(size)
            with meter.time("readinto, blocking, 1 MiB"), fs.open(path, "rb") as file:
                while file.readinto(buffer):
                    pass
        fs.remove(path)
    line = os.urandom(50).replace(b"\n", b"x") + b"\n"
    count = meter.length // 8 // len(line)
    fs.write_file("/lines", line * count)
    start = time.perf_counter()
    with fs.open("/lines", "rb") as file:
        assert sum(1 for _ in file) == count
    meter.rates["lines, blocking"] = count * len(line) / (time.perf_counter() - start) / MIB
    start = time.perf_counter()
    with fs.open("/lines", "r", encoding="latin-1", newline="\n") as text:
        assert sum(1 for _ in text) == count
    meter.rates["lines of text, blocking"] = count * len(line) / (time.perf_counter() - start) / MIB


def through_mount(address: str, meter: Meter) -> None:
    data = os.urandom(MIB)
    with tempfile.TemporaryDirectory() as top, mounted(address, Path(top) / "mount") as point:
        path = point / "mount"
        with meter.time("write, mount, 1 MiB"), path.open("wb", buffering=0) as file:
            for _ in range(meter.length // MIB):
                file.write(data)
            os.fsync(file.fileno())
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            with meter.time("read, mount, 1 MiB"):
                while file.read(MIB):
                    pass


def measure(address: str, length: int, mount: bool) -> Rates:
    meter = Meter(length)

    async def on_loop(work: Callable[[AsyncFileSystem, Meter], Awaitable[None]]) -> None:
        async with await threefs_client.connect_async(address) as fs:
            await work(fs, meter)

    uvloop.run(on_loop(asyncio_batches))
    uvloop.run(on_loop(asyncio_files))
    with threefs_client.connect(address) as fs:
        blocking_files(fs, meter)
    if mount:
        through_mount(address, meter)
    return meter.rates


def serve(address: str, point: str) -> None:
    """In a process of its own."""
    options = MountOptions(allow_other=os.geteuid() == 0)
    uvloop.run(mount_process.serve(address, point, options, lambda: print("ready", flush=True)))


@contextlib.contextmanager
def mounted(address: str, point: Path) -> Iterator[Path]:
    point.mkdir()
    process = subprocess.Popen(
        [sys.executable, __file__, "--serve", address, str(point)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise OSError(f"the mount did not start: exit status {process.wait(_MOUNT_S)}")
        yield point
    finally:
        if process.poll() is None:
            mountpoints.unmount(str(point))
            process.wait(_MOUNT_S)


# ---- rounds ----


def _in_process(python: Path, address: str, length: int, mount: bool) -> Rates:
    command = [str(python), __file__, "--measure", address, str(length), str(int(mount))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=_RUN_S, check=True)
    rates: Rates = json.loads(done.stdout.splitlines()[-1])
    return rates


def rounds(
    pythons: dict[str, Path], count: int, length: int, mount: bool, scratch: Path | None
) -> dict[str, list[Rates]]:
    found: dict[str, list[Rates]] = {name: [] for name in pythons}
    with tempfile.TemporaryDirectory(prefix="threefs-streaming-", dir=scratch) as top:
        local = LocalCluster(Path(top) / "cluster")
        address = uvloop.run(local.up(Plan(storage=3, replicas=3))).address
        try:
            for number in range(count):
                order = list(pythons.items())
                for name, python in order if number % 2 else reversed(order):
                    print(f"round {number + 1}, {name}", file=sys.stderr)
                    found[name].append(_in_process(python, address, length, mount))
        finally:
            uvloop.run(local.down())
    return found


def as_markdown(found: Found) -> str:
    medians = {
        name: {row: statistics.median(each[row] for each in rates) for row in rates[0]} for name, rates in found.items()
    }
    heads = "".join(f" {name}, MiB/s | of its batch |" for name in medians)
    lines = [f"| |{heads}", "|---|" + "---:|---:|" * len(medians)]
    for row in next(iter(medians.values())):
        cells = []
        for rates in medians.values():
            batch = rates["write, batch" if row.startswith("write") else "read, batch"]
            cells.append(f" {rates[row]:,.0f} | {rates[row] / batch:.2f} |")
        lines.append(f"| {row} |" + "".join(cells))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mib", type=int, default=512, help="size of each file, a multiple of 16")
    parser.add_argument("--mount", action="store_true", help="a mount, too")
    parser.add_argument("--other", type=Path, help="another checkout, to compare with")
    parser.add_argument("--scratch", type=Path, help="where the cluster is kept for the time")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--measure", nargs=3, metavar=("ADDRESS", "LENGTH", "MOUNT"), help=argparse.SUPPRESS)
    parser.add_argument("--serve", nargs=2, metavar=("ADDRESS", "POINT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(*options.serve)
        return
    if options.measure:
        address, length, mount = options.measure
        print(json.dumps(measure(address, int(length), mount == "1")))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the cluster
    pythons = {"this": Path(sys.executable)}
    if options.other:
        pythons["other"] = options.other / ".venv/bin/python"
    found = rounds(pythons, options.rounds, options.mib * MIB, options.mount, options.scratch)
    print(as_markdown(found))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
