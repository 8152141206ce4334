"""Loads through the mount that need no other system to compare with: overwrites of a few bytes, and records of several
writers in one file, as IO500's ior-hard has them, beside a file for each writer (ior-easy)."""

import time
from pathlib import Path

from benchmarks import load_runs, writers
from benchmarks.measurements import MIB, Load, Measurements
from benchmarks.run_plan import Round
from benchmarks.testbed import REPLICAS, Testbed, drop_caches, testbed, written_bytes

_4K = 4096
_SYNC_EVERY = 32
_POLL_S = 0.1
_COMPARED = "every byte compared by the reader, another process than the writer"

OVERWRITE = Load(
    "overwrite_4k",
    f"4 KiB overwrites at random on the mount, fsync after {_SYNC_EVERY}",
    "the same job again with verify=crc32c, all blocks read back",
    False,
)
WRITTEN = "overwrite_4k_written_bytes_per_byte"
WRITES = {
    shape.name: Load(f"io500_{shape.name}_write", f"{shape.what}, fsync at the end, on the mount", _COMPARED)
    for shape in writers.SHAPES
}
READS = {
    shape.name: Load(f"io500_{shape.name}_read", f"{shape.what}, read by another process each, cold", _COMPARED)
    for shape in writers.SHAPES
}


def measure(plan: Round, found: Measurements) -> None:
    with testbed(plan.scratch, mount=True) as bed:
        assert bed.point is not None
        _overwrite(plan, bed, bed.point, found)
        for shape in writers.SHAPES if plan.number % 2 else reversed(writers.SHAPES):
            plan.tell(f"io500_{shape.name}")
            place = bed.point / shape.name
            place.mkdir()
            for loads, reading in ((WRITES, False), (READS, True)):
                drop_caches()
                found.add(
                    loads[shape.name],
                    writers.run(place, shape, plan.size.writer_bytes, reading=reading, servers=bed.meter),
                )
        bed.note_memory(found)


def _overwrite(plan: Round, bed: Testbed, point: Path, found: Measurements) -> None:
    plan.tell(OVERWRITE.name)
    size = plan.size.overwritten_bytes
    whole = ["--name=overwrite", "--filename=overwritten", f"--size={size}"]
    load_runs.posix_job(point, [*whole, "--rw=write", "--bs=1m", "--fsync=64"])
    shape = [*whole, "--rw=randwrite", "--bs=4k", f"--fsync={_SYNC_EVERY}"]
    _settle(plan, bed.place)
    before = written_bytes(bed.place)
    timed = ["--time_based", f"--runtime={round(plan.size.seconds * 1000)}ms"]
    sample = load_runs.operations(load_runs.posix_job(point, [*shape, *timed], servers=bed.meter), _4K)
    found.add(OVERWRITE, sample)
    _settle(plan, bed.place)
    after = written_bytes(bed.place)
    if before is None or after is None:
        found.left_out[WRITTEN] = "the kernel does not count the bytes that the device of the scratch directory writes"
    else:
        found.add_number(WRITTEN, (after - before) / REPLICAS / (sample.amount * _4K))
    checked = ["--name=checked", f"--size={min(size, MIB)}", "--rw=randwrite", "--bs=4k", f"--fsync={_SYNC_EVERY}"]
    load_runs.threefs_bench(["--ioengine=posix", f"--directory={point}", *checked, "--verify=crc32c"])


def _settle(plan: Round, place: Path) -> None:
    """Wait until the disk has written nothing for a while: what a load has left to do is part of its cost."""
    seen, since = written_bytes(place), time.monotonic()
    end = since + plan.size.most_settle_s
    while time.monotonic() < min(since + plan.size.settle_s, end):
        time.sleep(_POLL_S)
        now = written_bytes(place)
        if now != seen:
            seen, since = now, time.monotonic()
