"""A job of two ranks that saves without end, to be killed. What it saves follows from the step."""

from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import threefs_client
from threefs_checkpoint.group import Group
from threefs_checkpoint.manager import CheckpointManager
from threefs_checkpoint.save_interval import Every
from threefs_checkpoint.state import Shard, State

from tests.harness.ranks import each_rank

ROOT = "/killed"
RANKS = 2
CHUNK_BYTES = 64 << 10
ROWS = 512  # of 1 KiB, of each rank


def content(step: int) -> Any:
    """All ranks' rows at a step."""
    return np.random.default_rng(step).integers(0, 256, (RANKS * ROWS, 1024), np.uint8)


def state_of(step: int, rank: int) -> State:
    rows = content(step)
    own = rows[rank * ROWS : (rank + 1) * ROWS]
    return {"rows": Shard(own, rows.shape, (rank * ROWS, 0)), "step": np.array(step), "head": rows[:3, ::2]}


def job(address: str, progress: Connection) -> None:
    """Resume, then save step after step, for ever. Says which steps were published."""

    def rank(group: Group) -> None:
        manager = CheckpointManager(
            fs, ROOT, group=group, every=Every(steps=1), chunk_bytes=CHUNK_BYTES, staging_bytes=8 * CHUNK_BYTES
        )
        found = manager.resume()
        step = 0 if found is None else found.step
        if group.rank == 0:
            progress.send_bytes(b"resumed %d" % step)
        while True:
            step += 1
            manager.step(step, state_of(step, group.rank), loss=0.0)
            manager.wait()
            if group.rank == 0:
                progress.send_bytes(b"published %d" % step)

    with threefs_client.connect(address, timeout_s=30.0) as fs:
        each_rank(RANKS, rank)
