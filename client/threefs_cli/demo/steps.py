"""The steps of the demonstration. Each measures its time in the file system and records its checks."""

import asyncio
from collections.abc import Mapping
from itertools import islice

import numpy as np
import threefs_checkpoint
import threefs_data
from numpy.typing import NDArray
from threefs_client import FileSystem, connect_async

from threefs_cli import tree_copy
from threefs_cli.demo.report import Report
from threefs_cli.local_tree import LocalTree

LIBRARY = "/stdlib"
DATASET = "/tokens"
CHECKPOINT = "/checkpoint"
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
    epoch = threefs_data.Epoch(seed=7, epoch=1)
    seen = np.zeros(len(samples), np.int64)
    order: list[int] = []
    wrong = 0
    batches = threefs_data.batches(fs, DATASET, epoch, batch_size=_BATCH_SAMPLES, workers=workers)
    while True:
        with report.timed(step):
            batch = next(batches, None)
        if batch is None:
            break
        for number, sample in zip(batch.numbers, batch.samples, strict=True):
            wrong += bytes(sample) != samples[number].tobytes()
            step.length_bytes += len(sample)
        np.add.at(seen, batch.numbers, 1)
        order += batch.numbers
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
    step = report.begin("write checkpoint")
    with report.timed(step):
        threefs_checkpoint.save(fs, CHECKPOINT, arrays)
    step.things = f"{len(arrays)} arrays"
    step.length_bytes = sum(array.nbytes for array in arrays.values())
    step.check("published", fs.stat(CHECKPOINT).length >= step.length_bytes)


def load_checkpoint(report: Report, fs: FileSystem, arrays: Arrays, name: str) -> None:
    step = report.begin(name)
    with report.timed(step):
        loaded = threefs_checkpoint.load(fs, CHECKPOINT)
    step.things = f"{len(loaded)} arrays"
    step.length_bytes = sum(array.nbytes for array in loaded.values())
    step.check("names", set(loaded) == set(arrays))
    # as integers: to a float comparison, bits that mean "not a number" differ from themselves
    same = all(
        np.array_equal(loaded[key].view(np.uint32), arrays[key].view(np.uint32)) for key in arrays if key in loaded
    )
    step.check("bit for bit", same)
