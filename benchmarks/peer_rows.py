"""Loads on the mounts of threefs and of other systems, and on the local disk, by the harness that brings them up."""

import subprocess
from collections.abc import Sequence
from typing import Any

from threefs_bench.peer_harness import Harness, PeerFailedError

from benchmarks.measurements import Load, Measurements, Sample
from benchmarks.run_plan import Round
from benchmarks.testbed import testbed

THREEFS, LOCAL = "threefs", "local_disk"
#: Of mountbench.
GROUPS = ("sequential", "random_read", "random_write", "small_files", "checkpoint")
_CHECK = "the lengths of all reads"


def row_name(system: str, load: str) -> str:
    return f"mount_{system}_{load}"


def measure(plan: Round, found: Measurements, harness: Harness, peers: Sequence[str]) -> None:
    """One round of every system in turn. A peer that fails is left out of this round, and the reason is noted."""
    systems = [THREEFS, LOCAL, *peers]
    for system in systems if plan.number % 2 else reversed(systems):
        plan.tell(system)
        try:
            rows = _rows(plan, found, harness, system)
        except (PeerFailedError, subprocess.SubprocessError) as error:
            found.left_out[system] = str(error)
            continue
        for row in rows:
            load, sample = of_row(system, row)
            found.add(load, sample)


def install(harness: Harness, peers: Sequence[str], found: Measurements) -> list[str]:
    """Those that can be measured."""
    able = []
    for name in peers:
        try:
            harness.install(name)
            able.append(name)
        except (PeerFailedError, OSError) as error:
            found.left_out[name] = str(error)
    return able


def _rows(plan: Round, found: Measurements, harness: Harness, system: str) -> list[dict[str, Any]]:
    if system == LOCAL:
        return harness.rows(plan.scratch, system, GROUPS)
    if system != THREEFS:
        with harness.peer(system) as (mount, inside):
            return harness.rows(mount, system, GROUPS, inside)
    with testbed(plan.scratch, mount=True) as bed:
        assert bed.point is not None
        rows = harness.rows(bed.point, system, GROUPS)
        bed.note_memory(found)
        return rows


def of_row(system: str, row: dict[str, Any]) -> tuple[Load, Sample]:
    """CPU is that of the whole machine."""
    in_bytes = row["unit"] == "MiB/s"
    load = Load(row_name(system, row["name"]), f"{row['name']} on {system.replace('_', ' ')}", _CHECK, in_bytes)
    return load, Sample(row["bytes"] if in_bytes else row["ops"], row["wall_s"], row["cpu_s"])
