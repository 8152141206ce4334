"""A cluster of processes under load: three storage nodes become six and then four, one gets an empty disk, and chains
get a third copy. Storage processes are killed on the way."""

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Callable

from threefs_cli.cluster_file import Plan, key_file
from threefs_cli.local_cluster import LocalCluster

from benchmarks.grow.mixed_load import MixedLoad
from benchmarks.grow.moved_bytes import Watcher, held, is_at_rest, least_targets
from benchmarks.grow.run_plan import Run
from benchmarks.measurements import Measurements
from threefs.ids import NodeId
from threefs.wire import manager_pb2 as pb

_LOOK_S = 0.1
_STEP_S = 900.0
_COMMAND_S = 300.0
_LEAVING = (5, 6)
_REPLACED = 2


class StuckError(OSError):
    """A change of the cluster does not come to its end."""


def measure(run: Run, found: Measurements) -> None:
    cluster = LocalCluster(run.scratch / "cluster")
    started = asyncio.run(cluster.up(Plan(storage=3, replicas=2)))
    try:
        _Changes(run, found, cluster, started.address).measure()
    finally:
        asyncio.run(cluster.down())


class _Changes:
    def __init__(self, run: Run, found: Measurements, cluster: LocalCluster, address: str) -> None:
        self._run, self._found, self._cluster = run, found, cluster
        key = key_file(cluster.directory)
        self._load = MixedLoad(address, key, run.size.file_bytes)
        self._watcher = Watcher(address.removeprefix("threefs://"), key)
        self._moved: list[tuple[float, float]] = []  # of each change: bytes, and the least number of them
        self._kills = 0

    def measure(self) -> None:
        try:
            self._load.start()
            idle_s = time.monotonic()
            time.sleep(self._run.size.idle_s)
            begin_s = time.monotonic()
            for name, change in self._steps().items():
                self._run.tell(f"{name}: {time.monotonic() - begin_s:.0f} s since the first change")
                self._watcher.begin()
                change()
            end_s = time.monotonic()
        finally:
            self._load.stop()
            self._watcher.stop()
        seen = self._load.seen
        for error in seen.errors:
            self._run.tell(error)
        clean = self._threefs("fsck", check=False)
        self._run.tell(clean)
        for name, value in {
            "errors": len(seen.errors),
            "fsck_unclean": float("clean" not in clean),
            "moved_over_minimum": sum(moved for moved, _ in self._moved) / sum(least for _, least in self._moved),
            "p99_over_idle": seen.p99_s(begin_s, end_s) / seen.p99_s(idle_s, begin_s),
            "p99_idle_s": seen.p99_s(idle_s, begin_s),
            "seconds": end_s - begin_s,
            "kills": self._kills,
            "checked_reads": len(seen.reads),
            "checked_writes": seen.writes,
            "moved_bytes": sum(moved for moved, _ in self._moved),
        }.items():
            self._found.add_number(name, value)

    def _steps(self) -> dict[str, Callable[[], None]]:
        return {
            "3 to 6 nodes": self._grow,
            "6 to 4 nodes": self._shrink,
            "another disk": self._replace_disk,
            "2 to 3 copies": self._copy,
        }

    def _grow(self) -> None:
        before, staying = held(self._watcher.newest), {NodeId(number) for number in range(1, 7)}
        self._threefs("up", "--storage", "6")
        self._kill(1)
        self._wait(lambda status: _is_level(status, staying))
        self._note(least_targets(before, staying))

    def _shrink(self) -> None:
        before, staying = held(self._watcher.newest), {NodeId(number) for number in range(1, 5)}
        for node in _LEAVING:
            self._threefs("node", "drain", str(node))
        self._kill(3)
        self._wait(lambda status: _is_level(status, staying))
        self._note(least_targets(before, staying))

    def _replace_disk(self) -> None:
        """The targets keep their names, and all their bytes are copied: no fewer can be."""
        self._threefs("disk", "replace", str(_REPLACED), "--yes", "--no-wait")
        name = f"storage-{_REPLACED}"
        asyncio.run(self._cluster.kill(name))
        self._kills += 1
        shutil.rmtree(self._cluster.directory / name / "data")
        asyncio.run(self._cluster.up())
        self._threefs("disk", "replace", str(_REPLACED), "--interval", "0.5")
        self._wait(lambda status: True)

    def _copy(self) -> None:
        chains = len(self._watcher.newest.chains)
        self._threefs("table", "set-replicas", "1", "3")
        self._kill(4)
        self._wait(lambda status: all(len(chain.members) == 3 for chain in status.chains))
        self._note(chains)

    def _kill(self, node: int) -> None:
        """With SIGKILL, while the change goes on; and start it again."""
        if not self._run.size.kills_in_each_change:
            return
        self._kills += 1
        asyncio.run(self._cluster.kill(f"storage-{node}"))
        asyncio.run(self._cluster.up())

    def _wait(self, reached: Callable[[pb.GetStatusReply], bool]) -> None:
        deadline_s = time.monotonic() + _STEP_S
        while not (is_at_rest(status := self._watcher.newest) and reached(status)):
            if time.monotonic() > deadline_s:
                raise StuckError(
                    f"the cluster still changes after {_STEP_S:g} s: {self._threefs('moves', check=False)}"
                )
            time.sleep(_LOOK_S)

    def _note(self, least: int) -> None:
        moved = self._watcher.moved
        self._moved.append((moved.bytes, moved.bytes / moved.over(least)))
        self._run.tell(
            f"  {len(moved.copied)} targets moved, {least} had to; {moved.bytes:,} bytes, {moved.again:,} again"
        )

    def _threefs(self, *arguments: str, check: bool = True) -> str:
        command = [sys.executable, "-m", "threefs_cli", *arguments, "--dir", str(self._cluster.directory)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
        if check and done.returncode:
            raise OSError(f"`threefs {' '.join(arguments)}` failed: {done.stderr or done.stdout}")
        return done.stdout.strip()


def _is_level(status: pb.GetStatusReply, staying: set[NodeId]) -> bool:
    """Whether the targets lie on these nodes alone, and equally many on each."""
    counts = held(status)
    numbers = [counts[node] for node in staying]
    return set(counts) == staying and max(numbers) - min(numbers) <= 1
