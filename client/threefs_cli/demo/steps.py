"""The steps of the demonstration. Each measures its time in the file system and records its checks."""

import asyncio
from collections.abc import Mapping
from itertools import islice

import numpy as np
import threefs_data
from numpy.typing import NDArray
from threefs_checkpoint import CheckpointDirectory, CheckpointManager
from threefs_client import FileSystem, connect_async

from threefs_cli import tree_copy
from threefs_cli.demo.report import Report
from threefs_cli.local_tree import LocalTree

LIBRARY = "/stdlib"
DATASET = "/tokens"
CHECKPOINTS = "/trained"
WORKERS = 4
_BATCH_SAMPLES = 256
_BATCH_FILES = 256

Files = Mapping[str, bytes]
Arrays = Mapping[str, NDArray[np.float32]]


def copy_in(report: Report, fs: FileSystem, source: str, files: Files) -> None:
    """The files as they lie on the local disk below `source`."""
    step = report.begin("copy files in")
    tree = LocalTree()
    tree.add_files(source, LIBRARY, files)

    async def copy() -> None:
        async with await connect_async(fs.address) as remote:
            await tree_copy.put(remote, tree, lambda count, size: None)

    with report.timed(step):
        asyncio.run(copy())
    step.things = f"{len(files)} files"
    step.length_bytes = sum(map(len, files.values()))
    usage = fs.usage(LIBRARY)
    step.check("number of files", usage.files == len(files))
    step.check("bytes of all files", usage.length == step.length_bytes)


def read_back(report: Report, fs: FileSystem, files: Files, name: str) -> None:
    """Every file, compared byte for byte."""
    step = report.begin(name)
    different = 0
    rest = iter(files.items())
    while batch := list(islice(rest, _BATCH_FILES)):
        # a byte more than there should be: a longer file is found out too
        rows = [(f"{LIBRARY}/{path}", 0, len(content) + 1) for path, content in batch]
        with report.timed(step):
            views = fs.read_batch(rows)
        different += sum(view != content for view, (_, content) in zip(views, batch, strict=True))
    step.things = f"{len(files)} files"
    step.length_bytes = sum(map(len, files.values()))
    step.check(f"{different} files differ" if different else "byte for byte", not different)


def pack_dataset(report: Report, fs: FileSystem, samples: NDArray[np.uint16]) -> None:
    step = report.begin("pack token dataset")
    with report.timed(step):
        packed = threefs_data.pack(fs, (sample.data for sample in samples), DATASET, shard_bytes=32 << 20)
    step.things = f"{packed} samples"
    step.length_bytes = samples.nbytes
    step.check("number of samples", packed == len(samples))


def read_epoch(report: Report, fs: FileSystem, samples: NDArray[np.uint16], name: str, workers: int) -> None:
    """Every sample of one shuffled epoch exactly once, each as it was packed."""
    step = report.begin(name)
    seen = np.zeros(len(samples), np.int64)
    order: list[int] = []
    wrong = 0
    dataset = threefs_data.Dataset(fs, DATASET)
    with threefs_data.Loader(dataset, global_batch=_BATCH_SAMPLES, seed=7, workers=workers) as loader:
        batches = iter(loader)
        while True:
            with report.timed(step):
                batch = next(batches, None)
            if batch is None:
                break
            wrong += int((batch.array(samples.dtype) != samples[batch.numbers]).any(axis=1).sum())
            step.length_bytes += int(batch.lengths.sum())
            np.add.at(seen, batch.numbers, 1)
            order += batch.numbers.tolist()
    step.things = f"{len(order)} samples" + (f", {workers} workers" if workers else "")
    step.check(f"{wrong} samples are wrong" if wrong else "each sample", not wrong)
    step.check("none lost or doubled", bool((seen == 1).all()))
    step.check("shuffled", order != sorted(order))


def make_arrays(length_bytes: int) -> dict[str, NDArray[np.float32]]:
    """Layers of a model, of random bits (not of zeros: those would be cheap everywhere)."""
    count = 8
    rows = max(1, length_bytes // count // 4096)
    source = np.random.default_rng(7)
    return {
        f"layers.{number}.weight": np.frombuffer(source.bytes(rows * 4096), np.float32).reshape(rows, 1024)
        for number in range(count)
    }


def save_checkpoint(report: Report, fs: FileSystem, arrays: Arrays) -> None:
    """Twice, as in training: the second save needs no new memory for the copy."""
    step = report.begin("write checkpoint")
    manager = CheckpointManager(fs, CHECKPOINTS)
    with report.timed(step):
        for number in (1, 2):
            manager.save(number, arrays)
        manager.close()
    step.things = f"{len(arrays)} arrays, twice"
    step.length_bytes = 2 * sum(array.nbytes for array in arrays.values())
    published = [each.step for each in CheckpointDirectory(fs, CHECKPOINTS).published()]
    step.check("both are published", published == [1, 2])


def load_checkpoint(report: Report, fs: FileSystem, arrays: Arrays, name: str) -> None:
    """The newest one that is valid."""
    step = report.begin(name)
    manager = CheckpointManager(fs, CHECKPOINTS)
    with report.timed(step):
        found = manager.resume()
    manager.close()
    loaded = found.tensors if found is not None else {}
    step.things = f"{len(loaded)} arrays"
    step.length_bytes = sum(array.nbytes for array in loaded.values())
    step.check("names", set(loaded) == set(arrays))
    # as integers: to a float comparison, bits that mean "not a number" differ from themselves
    same = all(
        np.array_equal(loaded[key].view(np.uint32), arrays[key].view(np.uint32)) for key in arrays if key in loaded
    )
    step.check("bit for bit", same)
