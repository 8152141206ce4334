"""A cluster of its own for the measurements of one round, mounted if they need that; and what its processes cost."""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from threefs_bench.mount_comparison import mounted
from threefs_cli.cluster_file import Plan
from threefs_cli.local_cluster import LocalCluster
from threefs_client.options import Options
from threefs_mount.options import MountOptions
from threefs_storage.chain.successor import WHOLE_CHUNK_BYTES
from threefs_storage.engine import working_memory

from benchmarks.load_runs import CpuMeter
from benchmarks.measurements import MIB, Measurements
from threefs.rpc.limits import Limits

REPLICAS = 3
_SECTOR_BYTES = 512
#: What a process needs before it has done anything: docs/capacity.md.
IDLE_BYTES = 80 << 20


@dataclass(frozen=True)
class Testbed:
    place: Path  # on the disk of the cluster
    address: str
    processes: dict[str, int]  # name -> process: manager, meta, storage-1, ..., and mount
    point: Path | None = None

    def note_memory(self, found: Measurements) -> None:
        """The peak of each process."""
        for name, process in self.processes.items():
            role = name.partition("-")[0]
            note_peak(found, role, peak_bytes(process))

    @property
    def meter(self) -> CpuMeter:
        return CpuMeter(list(self.processes.values()))


@contextmanager
def testbed(scratch: Path, *, mount: bool = False) -> Iterator[Testbed]:
    """Three storage processes and three copies. Its data are removed at the end. Raises PeerFailedError if it cannot be
    mounted, Unavailable."""
    with tempfile.TemporaryDirectory(prefix="threefs-bench-", dir=scratch) as name:
        place = Path(name)
        place.chmod(0o711)  # a database does not run as root
        cluster = LocalCluster(place / "cluster")
        started = asyncio.run(cluster.up(Plan(storage=REPLICAS, replicas=REPLICAS)))
        processes = {program.name: program.process.pid for program in started.programs if program.process is not None}
        try:
            if not mount:
                yield Testbed(place, started.address, processes)
                return
            point = place / "mnt"
            with mounted(started.address, point) as pid:
                yield Testbed(place, started.address, {**processes, "mount": pid}, point)
        finally:
            asyncio.run(cluster.down())


def note_peak(found: Measurements, role: str, peak: int) -> None:
    """Of a process that has this role: the peak, and its share of what it may have by its settings."""
    found.add_peak(f"{role}_peak_mib", peak / MIB)
    found.add_peak(f"{role}_peak_over_setting", peak / memory_setting_bytes(role))


def peak_bytes(process: int) -> int:
    """The most memory that a process has had in RAM."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


def memory_setting_bytes(name: str) -> int:
    """What a process may need at most for what its peers and its programs make it hold, by its settings. A client: for
    reads and writes in flight, and for what its file objects keep."""
    options = Options()
    if name == "client":
        return IDLE_BYTES + 2 * options.in_flight_bytes + options.max_dirty_bytes + options.max_read_ahead_bytes
    if name == "mount":
        return IDLE_BYTES + MountOptions().max_dirty_bytes + 2 * options.in_flight_bytes
    limits = Limits()
    of_calls = IDLE_BYTES + limits.process_bytes + limits.bodies_bytes + limits.calls_bytes
    if name == "storage":
        return of_calls + working_memory.MOST_BYTES + (REPLICAS - 1) * WHOLE_CHUNK_BYTES
    return of_calls


def drop_caches() -> bool:
    """Make the kernel forget what it has read. Only root may do that, and not in every container: False then."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3", encoding="ascii")
    except OSError:
        return False
    return True


def written_bytes(place: Path) -> int | None:
    """Bytes that the device of a directory has written since it was there; None if the kernel does not say."""
    device = place.stat().st_dev
    try:
        fields = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text(encoding="ascii").split()
    except OSError:
        return None
    return int(fields[6]) * _SECTOR_BYTES
