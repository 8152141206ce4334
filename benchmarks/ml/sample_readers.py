"""Reads samples in shuffled batches as a training does, and says how fast: each reader in a process of its own.

    python benchmarks/ml/sample_readers.py '{"kind": "loader", ...}'

It runs with any interpreter that has the library of the reader, and imports nothing else of this project. A part in the
middle is measured: before it processes start and buffers fill, behind it buffers run empty. `sample_sets.py` writes the
samples.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

#: A sample begins with its number, and ends with the number times this.
MARK = 0x9E3779B97F4A7C15
FIELD = "bin"  # of the samples in tar files, and their column in MDS
FLAT_NAME = "samples.bin"
RECORDS, MDS, TAR = "records", "mds", "tar"  # directories

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_WARM_BATCHES = 16  # of a reader that goes on and on
_MAX_SHUFFLED_SAMPLES = 1000  # in the shuffle buffer of a reader that needs one, or a part of the samples
_SHUFFLED_SHARE = 16
_VISION_OPERATORS = ("nms", "qnms")

Found = TypeVar("Found")
Rows = NDArray[np.uint8]  # a batch: one sample in each row


@dataclass(frozen=True)
class Plan:
    kind: str
    place: str  # directory of the samples: in the cluster for the loader, else on this machine
    address: str  # of the cluster
    samples: int
    sample_bytes: int
    batch: int
    workers: int
    seconds: float  # after these it ends, also within an epoch
    processes: list[int]  # of the services and the mount, whose CPU counts too


def loader(plan: Plan) -> Iterator[Rows]:
    """Epoch after epoch: nothing of an epoch stays at the client."""
    import threefs_client
    import threefs_data

    with (
        threefs_client.connect(plan.address, timeout_s=60.0) as fs,
        threefs_data.Dataset(fs, f"{plan.place}/{RECORDS}") as dataset,
        threefs_data.Loader(dataset, global_batch=plan.batch, seed=1, workers=plan.workers) as batches,
    ):
        while True:
            for batch in batches:
                yield batch.array(np.uint8)


class _FlatFile:
    """A map-style dataset: a sample is read from its place in one file."""

    def __init__(self, plan: Plan) -> None:
        self._path = f"{plan.place}/{FLAT_NAME}"
        self._plan = plan
        self._file: int | None = None

    def __len__(self) -> int:
        return self._plan.samples

    def __getitem__(self, number: int) -> bytes:
        if self._file is None:  # each worker has one of its own
            self._file = os.open(self._path, os.O_RDONLY)
        return os.pread(self._file, self._plan.sample_bytes, number * self._plan.sample_bytes)


def dataloader(plan: Plan) -> Iterator[Rows]:
    from torch.utils.data import DataLoader

    flat: Any = _FlatFile(plan)
    options = {"num_workers": plan.workers, "persistent_workers": True, "collate_fn": _tensor}
    yield from map(_rows, DataLoader(flat, batch_size=plan.batch, shuffle=True, **options))


def webdataset(plan: Plan) -> Iterator[Rows]:
    import webdataset

    shards = sorted(map(str, Path(plan.place, TAR).glob("*.tar")))
    buffered = min(_MAX_SHUFFLED_SAMPLES, plan.samples // _SHUFFLED_SHARE)
    samples = webdataset.WebDataset(shards, shardshuffle=len(shards)).shuffle(buffered, initial=buffered)
    batches = samples.to_tuple(FIELD).batched(plan.batch, collation_fn=lambda rows: _tensor([row[0] for row in rows]))
    options = {"num_workers": plan.workers, "persistent_workers": True, "batch_size": None}
    yield from map(_rows, webdataset.WebLoader(batches, **options))


def mosaic(plan: Plan) -> Iterator[Rows]:
    _declare_vision_operators()
    from streaming import StreamingDataset
    from torch.utils.data import DataLoader

    dataset = StreamingDataset(local=f"{plan.place}/{MDS}", shuffle=True, shuffle_seed=1, batch_size=plan.batch)
    options = {"num_workers": plan.workers, "persistent_workers": True}
    batches = DataLoader(dataset, batch_size=plan.batch, collate_fn=_tensor_of_columns, **options)
    yield from map(_rows, batches)


def _declare_vision_operators() -> None:
    """Mosaic's library imports torchvision, whose usual build does not load beside PyTorch's build without CUDA. Then
    its operators are declared by their names: nothing here calls them."""
    import torch

    if torch.version.cuda is None and not version("torchvision").endswith("+cpu"):
        for name in _VISION_OPERATORS:
            torch.library.define(f"torchvision::{name}", "() -> ()")


def _tensor(samples: list[bytes]) -> Any:
    import torch

    return torch.frombuffer(bytearray(b"".join(samples)), dtype=torch.uint8).reshape(len(samples), -1)


def _tensor_of_columns(samples: list[dict[str, bytes]]) -> Any:
    return _tensor([sample[FIELD] for sample in samples])


def _rows(tensor: Any) -> Rows:
    found: Rows = tensor.numpy()
    return found


READERS: dict[str, Callable[[Plan], Iterator[Rows]]] = {
    "loader": loader,
    "dataloader": dataloader,
    "webdataset": webdataset,
    "mosaic": mosaic,
}


def measure(plan: Plan) -> dict[str, float]:
    """Bytes, seconds, CPU seconds of all processes. Raises ValueError for a sample that is wrong or comes twice."""
    taken: list[NDArray[np.uint64]] = []
    read, begin_s, cpu_s, end_s = 0, 0.0, 0.0, 0.0
    first, last = _measured_part(plan)
    for number, rows in enumerate(READERS[plan.kind](plan)):
        taken.append(_numbers(rows))
        end_s = time.monotonic()
        if number == first:
            begin_s, cpu_s = end_s, _cpu_s(plan)
        elif number > first:
            read += rows.nbytes
            if number == last or end_s - begin_s >= plan.seconds:
                break
    cpu_s = _cpu_s(plan) - cpu_s
    _check(np.concatenate(taken), plan.samples)
    return {"bytes": read, "seconds": end_s - begin_s, "cpu_s": cpu_s}


def _measured_part(plan: Plan) -> tuple[int, int | None]:
    """The time begins with a batch, and ends at the latest with another one. The kernel would have the samples of a
    second epoch, so a reader over a mount has one epoch: its half in the middle is measured."""
    batches = plan.samples // plan.batch
    return (min(_WARM_BATCHES, batches // 4), None) if plan.kind == "loader" else (batches // 4, batches * 3 // 4)


def _numbers(rows: Rows) -> NDArray[np.uint64]:
    numbers = rows[:, :8].copy().view(np.uint64)[:, 0]
    marks = rows[:, -8:].copy().view(np.uint64)[:, 0]
    if (numbers * np.uint64(MARK) != marks).any():
        raise ValueError("a sample is not as it was written")
    return numbers


def _check(numbers: NDArray[np.uint64], samples: int) -> None:
    for first in range(0, len(numbers), samples):
        epoch = numbers[first : first + samples]
        if len(np.unique(epoch)) != len(epoch) or int(epoch.max()) >= samples:
            raise ValueError(f"an epoch of {samples} samples has one of them twice")


def _cpu_s(plan: Plan) -> float:
    """Of this process, those that it has started, also of those that have ended, and of the services."""
    return sum(map(process_cpu_s, [*family(os.getpid()), *plan.processes]))


def family(process: int) -> Iterator[int]:
    yield process
    for thread in _unless_ended(os.listdir, f"/proc/{process}/task") or ():
        for child in (_unless_ended(_read, f"/proc/{process}/task/{thread}/children") or "").split():
            yield from family(int(child))


def process_cpu_s(process: int) -> float:
    """The time of a process that has ended is in that of its parent."""
    stat = _unless_ended(_read, f"/proc/{process}/stat")
    return sum(map(int, stat.rpartition(")")[2].split()[11:15])) / _TICKS_PER_S if stat else 0.0


def _read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def _unless_ended(read: Callable[[str], Found], path: str) -> Found | None:
    """Nothing, when the process or the thread of a file under /proc has ended since it was listed."""
    try:
        return read(path)
    except (FileNotFoundError, ProcessLookupError):
        return None


if __name__ == "__main__":
    print("measured", json.dumps(measure(Plan(**json.loads(sys.argv[1])))), flush=True)
    os._exit(0)  # processes that read ahead would be waited for
