"""How much a resync costs the readers: latency of reads while all is quiet, and while a replica is brought up to date.

    python benchmarks/background_yield.py --rounds 3 --json background_yield.json

A cluster of three storage processes with three replicas runs on this machine. In each round one of them is killed, a
file is written that it misses, and it is started again. Then reads of another file are timed while the resync runs, and
again when it has ended. So quiet and busy moments take turns. It prints the median over the rounds of each percentile,
and the ratio of busy to quiet. The client shares the machine with all services.
"""

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import threefs_client
import uvloop
from threefs_cli.cluster_file import Plan
from threefs_cli.local_cluster import LocalCluster
from threefs_client.async_filesystem import AsyncFileSystem

from threefs.env.clock import CLOCK
from threefs.routing import PublicState
from threefs.rpc.methods import SPACE_INFO
from threefs.wire import storage_pb2 as pb

MIB = 1 << 20
_READ_BYTES = 128 * MIB
_VICTIM = "storage-3"
_WAIT_S = 300.0
_PIECE_BYTES = 8 * MIB
#: name: bytes of a read, and how many are in flight
WORKLOADS = {"4k_depth_1": (4096, 1), "4k_depth_8": (4096, 8), "1m_depth_1": (MIB, 1), "1m_depth_4": (MIB, 4)}
PERCENTILES = {"p50": 0.5, "p99": 0.99}


def _states(fs: AsyncFileSystem) -> list[PublicState]:
    chains = fs.context.cluster.routing.chains.values()
    return [member.state for chain in chains for member in chain.members]


async def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = CLOCK.monotonic() + _WAIT_S
    while not condition():
        if CLOCK.monotonic() > deadline:
            raise SystemExit(f"{what} did not happen within {_WAIT_S:.0f} s")
        await asyncio.sleep(0.02)


async def _write(fs: AsyncFileSystem, path: str, size: int) -> None:
    async with await fs.open(path, "wb") as file:
        for _ in range(size // _PIECE_BYTES):
            await file.write(random.randbytes(_PIECE_BYTES))


async def _latencies(
    fs: AsyncFileSystem, size: int, depth: int, until_s: float, more: Callable[[], bool]
) -> list[float]:
    """Seconds of each read, until that time, or as long as `more` says so."""
    found: list[float] = []
    async with await fs.open("/read", "rb") as file:

        async def read() -> None:
            into = bytearray(size)
            while (began := CLOCK.monotonic()) < until_s and more():
                at = random.randrange(_READ_BYTES // size) * size
                await fs.read_batch([(file, at, size)], into=[into])
                found.append(CLOCK.monotonic() - began)

        await asyncio.gather(*(read() for _ in range(depth)))
    return found


async def _measure(fs: AsyncFileSystem, seconds: float, more: Callable[[], bool]) -> dict[str, list[float]]:
    return {
        name: await _latencies(fs, size, depth, CLOCK.monotonic() + seconds, more)
        for name, (size, depth) in WORKLOADS.items()
    }


async def _used_bytes(fs: AsyncFileSystem) -> int:
    """By the targets that are syncing, and those of the same processes."""
    routing = fs.context.cluster.routing
    members = [member for chain in routing.chains.values() for member in chain.members]
    addresses = {routing.address_of(each.target_id) for each in members if each.state is PublicState.SYNCING}
    calls = [fs.context.peers.call(each, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=10) for each in addresses if each]
    return sum(target.used_bytes for reply in await asyncio.gather(*calls) for target in reply.targets)


async def _round(fs: AsyncFileSystem, cluster: LocalCluster, seconds: float, missed: int) -> dict[str, float]:
    """A resync with reads, then reads alone. Returns percentiles in microseconds, and the rate of the resync: as a
    whole, and beside the reads, if it has outlived them. Without reads it is not slowed down."""
    await cluster.kill(_VICTIM)
    await _until(lambda: PublicState.SERVING in _states(fs) and len({*_states(fs)}) > 1, "the death of a process")
    await _write(fs, "/missed", missed)
    await cluster.up()
    await _until(lambda: PublicState.SYNCING in _states(fs), "a resync")
    began, used = CLOCK.monotonic(), await _used_bytes(fs)
    ended = asyncio.create_task(_until(lambda: {*_states(fs)} == {PublicState.SERVING}, "the end of the resync"))
    busy = await _measure(fs, seconds, lambda: not ended.done())
    still, busy_s = not ended.done(), CLOCK.monotonic() - began
    moved = await _used_bytes(fs) - used
    await ended
    resync_s = CLOCK.monotonic() - began
    await asyncio.sleep(1.0)
    quiet = await _measure(fs, seconds, lambda: True)
    row = {"resync_mib_per_s": missed / MIB / resync_s, "resync_outlived_the_reads": float(still)}
    if still:
        row["resync_mib_per_s_beside_reads"] = moved / MIB / busy_s
    for name in WORKLOADS:
        for label, found in (("busy", busy[name]), ("quiet", quiet[name])):
            row[f"{name}_{label}_reads"] = len(found)
            for percentile, place in PERCENTILES.items():
                if found:
                    row[f"{name}_{label}_{percentile}_us"] = 1e6 * sorted(found)[int(place * len(found))]
    return row


async def _run(options: argparse.Namespace, directory: Path) -> list[dict[str, float]]:
    cluster = LocalCluster(directory)
    state = await cluster.up(Plan(storage=3, replicas=3, min_replicas=1))
    try:
        if options.config:
            words = [sys.executable, "-m", "threefs_cli", "config", "set", *options.config, "--dir", str(directory)]
            await asyncio.to_thread(subprocess.run, words, check=True, stdout=subprocess.DEVNULL)
        async with await threefs_client.connect_async(state.address, key_file=str(cluster.key_file)) as fs:
            await _write(fs, "/read", _READ_BYTES)
            await _measure(fs, 0.5, lambda: True)  # warm-up
            return [await _round(fs, cluster, options.seconds, options.missed_mib * MIB) for _ in range(options.rounds)]
    finally:
        await cluster.down()


def _table(rows: list[dict[str, float]]) -> dict[str, float]:
    keys = dict.fromkeys(key for row in rows for key in row)
    found = {key: statistics.median(row[key] for row in rows if key in row) for key in keys}
    for name in WORKLOADS:
        for percentile in PERCENTILES:
            busy, quiet = (found.get(f"{name}_{label}_{percentile}_us") for label in ("busy", "quiet"))
            if busy and quiet:
                found[f"read_{name}_{percentile}_resync_over_quiet"] = busy / quiet
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of reads, for each workload")
    parser.add_argument("--missed-mib", type=int, default=256, help="what the resync moves, in MiB")
    parser.add_argument("--config", nargs="*", help="of the cluster, for example background_share=0.03")
    parser.add_argument("--directory", type=Path, help="on the disk to measure; by default a temporary one")
    parser.add_argument("--json", type=Path, help="where the figures go")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory, ignore_cleanup_errors=True) as directory:
        rows = uvloop.run(_run(options, Path(directory) / "cluster"))
    found = _table(rows)
    for key, value in found.items():
        print(f"{key:50} {value:12.2f}")
    if options.json:
        options.json.write_text(json.dumps({"rounds": rows, **found}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
