"""A job whose ranks are processes, on a real cluster: one of them is killed while a checkpoint is saved."""

import multiprocessing
import os
import signal
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import threefs_client
from threefs_checkpoint import CheckpointManager, Every, SaveFailedError, Shard, Slice
from threefs_checkpoint.process_group import ProcessGroup
from threefs_checkpoint.state import Deferred

from tests.harness.cluster import LocalCluster
from threefs.errors import Unavailable

ROOT = "/rank-processes"
ROWS, COLUMNS = 24, 100_000


def content(step: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS) * step


def manager_of(fs: threefs_client.FileSystem, group: ProcessGroup) -> CheckpointManager:
    return CheckpointManager(fs, ROOT, group=group, every=Every(steps=1), chunk_bytes=64 << 10)


def killed() -> np.ndarray[Any, Any]:
    """Where a tensor that is copied now should be loaded."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("the process is dead")


def saving_rank(address: str, rank: int, world: int, meeting: Path, result: Connection) -> None:
    """Saves step 1, then step 2, in the midst of which the last rank kills itself."""
    group = ProcessGroup(rank, world, meeting, timeout_s=60)
    rows = ROWS // world
    with threefs_client.connect(address, timeout_s=30.0) as fs:
        manager = manager_of(fs, group)
        for step in (1, 2):
            part = content(step)[rank * rows : (rank + 1) * rows]
            state: dict[str, Any] = {"w": Shard(part, (ROWS, COLUMNS), (rank * rows, 0))}
            if step == 2 and rank == world - 1:
                state["last"] = Deferred("int64", (4,), killed)
            manager.save(step, state)
            try:
                manager.wait()
            except (Unavailable, SaveFailedError) as error:
                result.send_bytes(f"{type(error).__name__}: {error}".encode())
                return
    result.send_bytes(b"nothing was noticed")


def loading_rank(address: str, rank: int, world: int, meeting: Path, result: Connection) -> None:
    group = ProcessGroup(rank, world, meeting, timeout_s=60)
    rows = ROWS // world
    with threefs_client.connect(address, timeout_s=30.0) as fs:
        manager = manager_of(fs, group)
        wanted = {"w": Slice((rank * rows, 0), (rows, COLUMNS))}
        found, everything = manager.resume(wanted), manager.resume()
        manager.close()
    assert found is not None and everything is not None
    assert (found.tensors["w"] == content(found.step)[rank * rows : (rank + 1) * rows]).all()
    assert (everything.tensors["w"] == content(found.step)).all()
    result.send_bytes(b"%d %d" % (found.step, everything.report.bytes_read))


def run(cluster: LocalCluster, world: int, work: object) -> list[str]:
    """What each rank says; of one that was killed, nothing."""
    context = multiprocessing.get_context("fork")
    said = []
    with tempfile.TemporaryDirectory(prefix="ranks-") as directory:
        started = []
        for rank in range(world):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=work, args=(cluster.address, rank, world, Path(directory), theirs))  # type: ignore[arg-type]
            process.start()
            theirs.close()
            started.append((process, ours))
        for process, ours in started:
            try:
                said.append(ours.recv_bytes().decode())
            except EOFError:
                said.append("")
            process.join(60)
    return said


def test_a_rank_that_is_killed_fails_the_save_and_the_checkpoint_before_is_resumed(cluster: LocalCluster) -> None:
    first, second, third = run(cluster, 3, saving_rank)
    assert third == "", "it was killed"
    for survivor in (first, second):
        assert survivor.startswith(("Unavailable: rank", "SaveFailedError: rank")), survivor
    said = [each.split() for each in run(cluster, 2, loading_rank)]
    assert [step for step, _ in said] == ["1", "1"]
    assert sum(int(read) for _, read in said) == content(1).nbytes, "each byte is read once"
