"""Checkpoints: how fast they are saved and loaded, beside the load generator and other ways; what must never fail."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import threefs_client
from numpy.typing import NDArray
from threefs_bench.mount_comparison import mounted
from threefs_bench.peer_harness import NAMES, PeerFailedError
from threefs_checkpoint import CheckpointManager, Group, Shard, Slice
from threefs_checkpoint.index import INDEX_NAME
from threefs_checkpoint.saving import CHUNK_BYTES

from benchmarks.load_runs import threefs_bench
from benchmarks.measurements import Load, Measurements, Sample
from benchmarks.ml.checkpoint_jobs import Plan
from benchmarks.ml.run_plan import Round
from benchmarks.testbed import REPLICAS, Testbed, testbed
from tests.chaos import killed_saves
from tests.harness.cluster import LocalCluster
from tests.harness.mounts import lacking
from tests.harness.ranks import each_rank
from threefs.errors import ThreefsError

Numbers = NDArray[np.uint64]

GENERATOR, MANAGER = "load_generator", "manager"
_DEPTH = 16
_TIMEOUT_S = 600.0
_REASON_CHARS = 300

SAVE = {
    MANAGER: "CheckpointManager, with host copy, verification and publication",
    GENERATOR: f"threefs bench, writes of 1 MiB, {_DEPTH} in flight, durable on {REPLICAS} copies",
    "dcp_local": "torch.distributed.checkpoint to a local directory, one copy",
    "dcp_fsspec": "torch.distributed.checkpoint to threefs:// by fsspec",
    "dcp_threefs": "torch.distributed.checkpoint with ThreeFSWriter",
    "safetensors_mount": "safetensors on the mount",
}
#: Modules that a job needs beyond those of threefs.
NEEDED = {"dcp_local": "torch", "dcp_fsspec": "torch", "dcp_threefs": "torch", "safetensors_mount": "safetensors"}
#: The same as on our mount, on those of other file systems, by the name of the system.
ON_PEERS = {name: f"safetensors_{name}" for name in NAMES}
SAVE |= {job: f"safetensors on the mount of {name}; CPU is that of the job alone" for name, job in ON_PEERS.items()}
_SAVED_BY, _LOADED_BY, _READERS = 4, (1, 2, 3, 8), 8
_ROWS, _COLUMNS = 1536, 256


def load_of(direction: str, job: str) -> Load:
    what = (
        SAVE[job] if direction == "save" or job != GENERATOR else f"threefs bench, reads of 1 MiB, {_DEPTH} in flight"
    )
    check = "" if job == GENERATOR else "what is loaded is compared with what was saved"
    return Load(f"checkpoint_{direction}_{job}", what, check)


def measure(plan: Round, found: Measurements) -> None:
    """One round of all jobs; every second one turns the order round."""
    jobs = [GENERATOR, MANAGER, *_able(plan, found)]
    with testbed(plan.scratch) as bed:
        for job in jobs if plan.number % 2 else reversed(jobs):
            plan.tell(f"checkpoint, {job}")
            for direction, sample in _way(found, job)(plan, bed, job).items():
                found.add(load_of(direction, job), sample)
        plan.tell("checkpoint, in a small staging area")
        _measure_staging(plan, bed, found)
        if plan.number == 1:
            _measure_ranks(bed, found, plan.tell)
        bed.note_memory(found)
    if plan.number == 1:
        plan.tell(f"{plan.size.kills} kills")
        _measure_kills(plan, found)


def _way(found: Measurements, job: str) -> Callable[[Round, Testbed, str], dict[str, Sample]]:
    if job == GENERATOR:
        return _generate
    return partial(_run_on_peer if job in ON_PEERS.values() else _run, found)


def _able(plan: Round, found: Measurements) -> list[str]:
    able = [ON_PEERS[name] for name in NAMES if name in plan.beside and _is_installed(plan, found, name)]
    for job, module in NEEDED.items():
        if job not in plan.beside:
            continue
        reason = lacking() if job == "safetensors_mount" else ""
        if not reason and subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True).returncode:
            reason = f"{module} is not installed (make ml-venv)"
        if reason:
            found.left_out[job] = reason
        else:
            able.append(job)
    return able


def _is_installed(plan: Round, found: Measurements, name: str) -> bool:
    if plan.harness is None:
        found.left_out[name] = "PEERS= does not name a harness that brings other systems up"
        return False
    try:
        plan.harness.install(name)
    except (PeerFailedError, OSError) as error:
        found.left_out[name] = str(error)
        return False
    return True


def _generate(plan: Round, bed: Testbed, _job: str) -> dict[str, Sample]:
    where = ["--name=generator", "--ioengine=native", f"--address={bed.address}", "--directory=/generator"]
    shape = ["--bs=1m", f"--iodepth={_DEPTH}", f"--size={plan.size.checkpoint_bytes}"]
    # as a job does, it writes new files, and reads what it has just written
    return {name: threefs_bench([*where, *shape, f"--rw={rw}"]) for name, rw in (("save", "write"), ("load", "read"))}


def _run(found: Measurements, plan: Round, bed: Testbed, job: str) -> dict[str, Sample]:
    size, processes = plan.size.checkpoint_bytes, list(bed.processes.values())
    places = {
        MANAGER: "/manager",
        "dcp_local": str(bed.place / "dcp"),
        "dcp_fsspec": f"{bed.address}/dcp-fsspec",
        "dcp_threefs": f"{bed.address}/dcp-threefs",
    }
    if job != "safetensors_mount":
        figures = _figures(Plan(job, bed.address, places[job], size, processes))
    else:
        point = bed.place / "mnt"
        with mounted(bed.address, point) as process:
            figures = _figures(Plan(job, bed.address, f"{point}/safetensors", size, [*processes, process]))
        point.rmdir()
    if job == MANAGER:
        for name in ("stall_over_host_copy", "stall_s"):
            found.add_number(f"checkpoint_{name}", figures[name])
    return {name: Sample(size, figures[f"{name}_s"], figures[f"{name}_cpu_s"]) for name in ("save", "load")}


def _run_on_peer(found: Measurements, plan: Round, bed: Testbed, job: str) -> dict[str, Sample]:
    """A peer that fails is left out of this round, and the reason is noted."""
    name, size = job.removeprefix("safetensors_"), plan.size.checkpoint_bytes
    assert plan.harness is not None, "the peer was installed by it"
    try:
        with plan.harness.peer(name) as (mount, inside):
            figures = _figures(Plan("safetensors_mount", bed.address, f"{mount}/checkpoints", size, []), inside)
    except (PeerFailedError, OSError, subprocess.SubprocessError) as error:
        found.left_out[name] = str(error)
        return {}
    return {name: Sample(size, figures[f"{name}_s"], figures[f"{name}_cpu_s"]) for name in ("save", "load")}


def _figures(plan: Plan, inside: Sequence[str] = ()) -> dict[str, float]:
    """`inside` is a command that runs others."""
    command = [*inside, sys.executable, "-m", "benchmarks.ml.checkpoint_jobs", json.dumps(asdict(plan))]
    # a program that brings peers up takes PEERS, which make has exported, for an option of its own
    environment = {key: value for key, value in os.environ.items() if key != "PEERS"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, env=environment)
    lines = [line for line in done.stdout.splitlines() if line.startswith("measured ")]
    if done.returncode or not lines:
        raise OSError(f"{plan.kind}: {done.stderr.strip()[-_REASON_CHARS:]}")
    figures: dict[str, float] = json.loads(lines[-1].removeprefix("measured "))
    return figures


def _measure_staging(plan: Round, bed: Testbed, found: Measurements) -> None:
    """The area has a quarter of what is saved."""
    setting = plan.size.checkpoint_bytes // 4
    figures = _figures(
        Plan(MANAGER, bed.address, "/staging", plan.size.checkpoint_bytes, list(bed.processes.values()), setting)
    )
    found.add_peak("staging_peak_over_setting", figures["staging_peak_bytes"] / setting)


def _measure_ranks(bed: Testbed, found: Measurements, tell: Callable[[str], None]) -> None:
    """Saved on 4 ranks, loaded on other numbers of them, bit by bit; and a load of everything on 8, read once."""
    whole = np.frombuffer(np.random.default_rng(11).bytes(_ROWS * _COLUMNS * 8), np.uint64).reshape(_ROWS, _COLUMNS)
    with threefs_client.connect(bed.address, timeout_s=60.0) as fs:
        tell(f"checkpoint, saved on {_SAVED_BY} ranks")
        each_rank(_SAVED_BY, lambda group: _save_rows(fs, group, whole))
        wrong = 0
        for world in _LOADED_BY:
            tell(f"checkpoint, loaded on {world} ranks")
            wrong += not all(each_rank(world, lambda group: _is_exact(fs, group, whole)))
        found.add_number("resharded_loads", len(_LOADED_BY))
        found.add_number("resharded_loads_wrong", wrong)
        tell(f"checkpoint, loaded once for {_READERS} ranks")
        counted = _CountedReads(fs)
        stored = each_rank(_READERS, lambda group: _read_everything(counted, group, whole))[0]
        found.add_number("read_once_bytes_over_checkpoint", counted.bytes_read / stored)


class _CountedReads:
    """A file system that counts the bytes of its batches of reads."""

    def __init__(self, fs: threefs_client.FileSystem) -> None:
        self.bytes_read = 0
        self._fs = fs
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    def read_batch(self, rows: Any, into: Any = None) -> Any:
        views = self._fs.read_batch(rows, into=into)
        with self._lock:
            self.bytes_read += sum(map(len, views))
        return views


def _save_rows(fs: threefs_client.FileSystem, group: Group, whole: Numbers) -> None:
    manager = CheckpointManager(fs, "/ranks", group=group, chunk_bytes=CHUNK_BYTES // 16)
    first, end = _share(_ROWS, group)
    replicated = whole[::-1].copy()
    manager.save(1, {"sharded": Shard(whole[first:end], whole.shape, (first, 0)), "replicated": replicated})
    manager.wait()
    manager.close()


def _share(count: int, group: Group) -> tuple[int, int]:
    return count * group.rank // group.world, count * (group.rank + 1) // group.world


def _is_exact(fs: threefs_client.FileSystem, group: Group, whole: Numbers) -> bool:
    """Slices in the other direction than those that were saved."""
    first, end = _share(_COLUMNS, group)
    wanted = Slice((0, first), (_ROWS, end - first))
    manager = CheckpointManager(fs, "/ranks", group=group)
    found = manager.load(1, {"sharded": wanted, "replicated": wanted}).tensors
    manager.close()
    return bool(
        (found["sharded"] == whole[:, first:end]).all() and (found["replicated"] == whole[::-1, first:end]).all()
    )


def _read_everything(fs: Any, group: Group, whole: Numbers) -> int:
    """The bytes of the checkpoint in storage."""
    manager = CheckpointManager(fs, "/ranks", group=group)
    found = manager.load(1)
    manager.close()
    assert np.array_equal(found.tensors["sharded"], whole)
    return sum(found.index.file_bytes) + int(fs.stat(f"{found.path}/{INDEX_NAME}").length)


def _measure_kills(plan: Round, found: Measurements) -> None:
    """A job is killed at random points of its saves. Behind each kill a valid checkpoint is there, and no wrong one."""
    wrong = 0
    with tempfile.TemporaryDirectory(dir=plan.scratch) as directory, LocalCluster(Path(directory)) as cluster:
        try:
            killed_saves.run(cluster, plan.size.kills, seed=plan.size.kills)
        except (AssertionError, ThreefsError) as error:
            wrong = 1
            found.left_out["kills after a wrong checkpoint"] = str(error)
    found.add_number("killed_saves", plan.size.kills)
    found.add_number("killed_saves_wrong", wrong)
