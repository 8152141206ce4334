"""Saves and loads the same tensors in several ways: each in a process of its own, which has done it once before.

    python -m benchmarks.ml.checkpoint_jobs '{"kind": "manager", ...}'

All of them load into memory that they have, as a trainer does, where they can; and all that is saved is durable.
"""

import json
import os
import shutil
import sys
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import threefs_client
from numpy.typing import NDArray
from threefs_bench.cost_meter import process_cpu_s
from threefs_checkpoint import CheckpointManager
from threefs_checkpoint.saving import CHUNK_BYTES

TENSORS = 8
State = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Plan:
    kind: str
    address: str  # of the cluster
    place: str  # a directory that the job makes: of the cluster or of this machine
    bytes: int
    processes: list[int]  # of the services and a mount, whose CPU counts too
    staging_bytes: int = 0  # 0: as much as is saved


class Job(ABC):
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        source = np.random.default_rng(7)
        size = plan.bytes // TENSORS
        self.state: State = {f"layer.{n}": np.frombuffer(source.bytes(size), np.uint8) for n in range(TENSORS)}
        self.figures: dict[str, float] = {}

    @abstractmethod
    def save(self, step: int) -> None:
        """Until it is durable."""

    @abstractmethod
    def load(self, step: int) -> State: ...

    def close(self) -> None:
        return


class Manager(Job):
    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._fs = threefs_client.connect(plan.address, timeout_s=60.0)
        staging_bytes = plan.staging_bytes or plan.bytes + 2 * CHUNK_BYTES
        self._manager = CheckpointManager(self._fs, plan.place, staging_bytes=staging_bytes)
        self._into = {name: np.zeros_like(array) for name, array in self.state.items()}

    def save(self, step: int) -> None:
        self._manager.save(step, self.state)
        report = self._manager.wait()
        assert report is not None
        self.figures = {
            "stall_over_host_copy": report.stall_s / report.copy_s,
            "stall_s": report.stall_s,
            "staging_peak_bytes": report.staging_peak_bytes,
        }

    def load(self, step: int) -> State:
        return self._manager.load(step, into=self._into).tensors

    def close(self) -> None:
        self._manager.close()
        self._fs.close()


class _Torch(Job):
    """torch.distributed.checkpoint, to a directory of this machine or to a URL."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        import torch

        self._tensors = {name: torch.from_numpy(array.copy()) for name, array in self.state.items()}
        self._into = {name: torch.zeros_like(tensor) for name, tensor in self._tensors.items()}

    def _where(self, step: int) -> str:
        return f"{self.plan.place}/step-{step}"

    def _options(self, step: int, *, saving: bool) -> dict[str, Any]:
        return {"checkpoint_id": self._where(step)}

    def save(self, step: int) -> None:
        import torch.distributed.checkpoint as dcp

        dcp.save(self._tensors, **self._options(step, saving=True), no_dist=True)

    def load(self, step: int) -> State:
        import torch.distributed.checkpoint as dcp

        dcp.load(self._into, **self._options(step, saving=False), no_dist=True)
        return {name: tensor.numpy() for name, tensor in self._into.items()}


class TorchWriter(_Torch):
    """With the writer and the reader of threefs_torch."""

    def _options(self, step: int, *, saving: bool) -> dict[str, Any]:
        import threefs_torch

        if saving:
            return {"storage_writer": threefs_torch.ThreeFSWriter(self._where(step))}
        return {"storage_reader": threefs_torch.ThreeFSReader(self._where(step))}


class Safetensors(Job):
    """A file in a directory of this machine, which is a mount."""

    def _path(self, step: int) -> Path:
        return Path(self.plan.place, f"step-{step}.safetensors")

    def save(self, step: int) -> None:
        from safetensors.numpy import save_file

        path = self._path(step)
        path.parent.mkdir(exist_ok=True)
        save_file(self.state, path)
        with path.open("rb+") as file:
            os.fsync(file.fileno())

    def load(self, step: int) -> State:
        from safetensors.numpy import load_file

        found: State = load_file(self._path(step))
        return found


JOBS: dict[str, type[Job]] = {
    "manager": Manager,
    "dcp_local": _Torch,
    "dcp_fsspec": _Torch,
    "dcp_threefs": TorchWriter,
    "safetensors_mount": Safetensors,
}


def run(plan: Plan) -> dict[str, float]:
    """Seconds and CPU seconds of a save and of a load. Raises ValueError if something else is loaded."""
    job = JOBS[plan.kind](plan)
    found: dict[str, float] = {}
    for step in (1, 2):  # the second time counts: connections and memory are there then
        for name in ("save", "load"):
            begin_s, cpu_s = time.monotonic(), _cpu_s(plan)
            loaded = job.save(step) if name == "save" else job.load(step)
            found[f"{name}_s"] = time.monotonic() - begin_s
            found[f"{name}_cpu_s"] = _cpu_s(plan) - cpu_s
        if not loaded or any(not np.array_equal(loaded[key], array) for key, array in job.state.items()):
            raise ValueError(f"{plan.kind}: what was loaded is not what was saved")
    found |= job.figures
    job.close()
    return found


def _cpu_s(plan: Plan) -> float:
    return sum(map(process_cpu_s, [os.getpid(), *plan.processes]))


if __name__ == "__main__":
    chosen = Plan(**json.loads(sys.argv[1]))
    print("measured", json.dumps(run(chosen)), flush=True)
    if chosen.kind == "dcp_local":
        shutil.rmtree(chosen.place)
