"""Rates of metadata operations through mounts: threefs and other file systems in alternating rounds on one machine."""

import asyncio
import json
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from threefs_cli.cluster_file import Plan
from threefs_cli.local_cluster import LocalCluster
from threefs_mount import mountpoints

from threefs_bench.mount import Row
from threefs_bench.peer_harness import Harness, PeerFailedError

THREEFS = "threefs"
_MOUNT_S = 120.0
_MEASURE_S = 600.0

Progress = Callable[[str], None]


@dataclass
class Comparison:
    """`rounds` has the rows of each system for each round; `failures` the reason why a system lacks a round."""

    rounds: dict[str, list[list[Row]]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def medians(self) -> dict[str, dict[str, Row]]:
        """system -> name of the row -> medians over the rounds."""
        return {system: _medians(rounds) for system, rounds in self.rounds.items()}


def _medians(rounds: Sequence[Sequence[Row]]) -> dict[str, Row]:
    by_name: dict[str, list[Row]] = {}
    for row in (row for rows in rounds for row in rows):
        by_name.setdefault(row.name, []).append(row)
    return {
        name: Row(
            name,
            statistics.median(row.per_s for row in rows),
            statistics.median(row.p50_ms for row in rows),
            statistics.median(row.p99_ms for row in rows),
            statistics.median(row.cpu_s_per_1000 for row in rows),
            min(row.operations for row in rows),
        )
        for name, rows in by_name.items()
    }


@contextmanager
def mounted_threefs(scratch: Path) -> Iterator[Path]:
    """A cluster of its own, three processes with three copies, mounted. Raises PeerFailedError."""
    with tempfile.TemporaryDirectory(prefix="threefs-bench-", dir=scratch) as place, _mounted(Path(place)) as point:
        yield point


@contextmanager
def _mounted(place: Path) -> Iterator[Path]:
    cluster = LocalCluster(place / "cluster")
    started = asyncio.run(cluster.up(Plan(storage=3, replicas=3)))
    try:
        with mounted(started.address, place / "mnt"):
            yield place / "mnt"
    finally:
        asyncio.run(cluster.down())


@contextmanager
def mounted(address: str, point: Path) -> Iterator[int]:
    """A cluster at a new directory; the process behind it. Raises PeerFailedError."""
    point.mkdir()
    try:
        yield int(json.loads(_threefs("mount", "--address", address, "--json", str(point)))["pid"])
    finally:
        if mountpoints.find(str(point)) is not None:
            _unmount(point)


def _unmount(point: Path) -> None:
    try:
        _threefs("umount", str(point))
    except PeerFailedError:  # it is busy: its process ends with its last user
        _threefs("umount", "--lazy", str(point))
        raise


def _threefs(*words: str) -> str:
    """Signals to the group of this process, as of a terminal, do not reach it: it ends when this process says so."""
    command = [sys.executable, "-m", "threefs_cli", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            printed, said = process.communicate(timeout=_MOUNT_S)
        except BaseException:
            process.send_signal(signal.SIGINT)  # it ends what it has begun
            raise
    if process.returncode:
        raise PeerFailedError(f"threefs {words[0]}: {said.strip()}")
    return printed


def measure(
    peers: Sequence[str], harness: Harness | None, scratch: Path, progress: Progress, *, rounds: int, files: int
) -> Comparison:
    """Without a harness threefs alone, by the measurement of threefs_bench.mount."""
    found = Comparison()
    if harness is not None:
        for name in peers:
            progress(f"installing {name}")
            _record_failure(found, name, partial(harness.install, name))
    able = [THREEFS, *(name for name in peers if harness is not None and name not in found.failures)]
    for number in range(rounds):
        for system in able:  # what failed in one round may do better in the next
            progress(f"round {number + 1} of {rounds}: {system}")
            _record_failure(found, system, partial(_round, found, system, harness, scratch, files))
    return found


def _round(found: Comparison, system: str, harness: Harness | None, scratch: Path, files: int) -> None:
    if system == THREEFS:
        with mounted_threefs(scratch) as point:
            rows = harness.measure(point, system) if harness is not None else _measure_threefs(point, files)
    else:
        assert harness is not None
        rows = harness.measure_peer(system)
    found.rounds.setdefault(system, []).append(rows)


def _measure_threefs(point: Path, files: int) -> list[Row]:
    """In a process of its own, which has no threads and may fork."""
    command = [sys.executable, "-m", "threefs_bench", "mount", str(point), "--files", str(files), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_MEASURE_S)
    if done.returncode:
        raise PeerFailedError(done.stderr.strip())
    return [Row(**row) for row in json.loads(done.stdout)]


def _record_failure(found: Comparison, system: str, work: Callable[[], None]) -> None:
    try:
        work()
    except (PeerFailedError, OSError) as error:  # the others go on
        found.failures[system] = str(error)


def table(found: Comparison) -> str:
    """Markdown: rates, and CPU seconds of the whole machine per 1000 operations, of each system."""
    medians = found.medians()
    systems = list(medians)
    names = list(dict.fromkeys(name for rows in medians.values() for name in rows))
    lines = [f"| operation | {' | '.join(systems)} |", "|---|" + "---:|" * len(systems)]
    for name in names:
        cells = [_cell(medians[system].get(name)) for system in systems]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    for system, reason in found.failures.items():
        lacks = "not in all rounds" if system in found.rounds else "no figures"
        lines.append(f"\n{system}: {lacks}, {reason}")
    return "\n".join(lines) + "\n"


def _cell(row: Row | None) -> str:
    return "" if row is None else f"{row.per_s:,.0f}/s, {row.cpu_s_per_1000:.2f} s"
