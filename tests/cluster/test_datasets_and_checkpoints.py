"""Datasets and checkpoints on a cluster of real processes."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from threefs_checkpoint import load, read_index, save
from threefs_client.blocking.filesystem import FileSystem
from threefs_data import Dataset, Epoch, batches, pack, pack_files

from tests.harness.cluster import LocalCluster
from threefs.errors import AlreadyExists, NotFound

SAMPLES = [bytes([number % 251]) * (1 + number * 37 % 3000) for number in range(2000)]


@pytest.fixture(scope="module")
def directory(cluster: LocalCluster) -> str:
    with cluster.connect() as fs:
        fs.mkdir("/ml")
        pack(fs, SAMPLES, "/ml/samples", shard_bytes=700_000)
    return "/ml"


def read(fs: FileSystem, path: str, epoch: Epoch, workers: int, start_method: str = "spawn") -> list[tuple[int, bytes]]:
    return [
        (number, bytes(sample))
        for batch in batches(fs, path, epoch, batch_size=64, workers=workers, start_method=start_method)
        for number, sample in zip(batch.numbers, batch.samples, strict=True)
    ]


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_worker_processes_read_one_shuffled_epoch(fs: FileSystem, directory: str, start_method: str) -> None:
    epoch = Epoch(seed=3, epoch=1)
    found = read(fs, f"{directory}/samples", epoch, 3, start_method)
    assert sorted(found) == list(enumerate(SAMPLES))
    assert found == read(fs, f"{directory}/samples", epoch, 0)
    assert [number for number, _ in found] != list(range(len(SAMPLES)))


def test_a_dataset_of_files(fs: FileSystem, directory: str) -> None:
    contents = [b"%d" % number * (number * 31 % 977) for number in range(50)] + [bytes(3 << 20)]
    for number, content in enumerate(contents):
        fs.write_file(f"{directory}/{number}.txt", content)
    names = [f"{directory}/{number}.txt" for number in range(len(contents))]
    assert pack_files(fs, names, f"{directory}/files") == len(contents)
    with Dataset(fs, f"{directory}/files") as dataset:
        assert dataset.__getitems__(range(len(dataset))) == contents


def test_a_dataset_is_never_replaced(fs: FileSystem, directory: str) -> None:
    with pytest.raises(AlreadyExists):
        pack(fs, [b"new"], f"{directory}/samples")
    assert not [entry.name for entry in fs.list(directory) if "unfinished" in entry.name]
    with pytest.raises(NotFound):
        Dataset(fs, f"{directory}/nothing")


def model(seed: int) -> dict[str, NDArray[Any]]:
    numbers = np.random.default_rng(seed)
    return {
        "embedding": numbers.normal(size=(1200, 333)).astype(np.float32),
        "exact": numbers.integers(0, 255, 2 << 20).astype(np.uint8),
        "bias": numbers.normal(size=77),
        "step": np.array(17),
        "empty": np.empty((3, 0), np.int16),
    }


@pytest.mark.parametrize("chunk_bytes", [0, 256 << 10])
def test_a_checkpoint_comes_back_bit_by_bit(fs: FileSystem, directory: str, chunk_bytes: int) -> None:
    path = f"{directory}/checkpoint-{chunk_bytes}"
    for seed in (1, 2):  # the second replaces the first
        save(fs, path, model(seed), chunk_bytes=chunk_bytes)
        found = load(fs, path)
        assert found.keys() == model(seed).keys()
        for name, array in model(seed).items():
            assert found[name].dtype == array.dtype and found[name].shape == array.shape
            assert found[name].tobytes() == array.tobytes()
    chunk = fs.stat(path).layout.chunk_bytes  # type: ignore[union-attr]
    assert chunk == (chunk_bytes or chunk)
    assert read_index(fs, path)["exact"].offset % chunk == 0
    assert load(fs, path, ["step"])["step"] == 17
    assert not [entry.name for entry in fs.list(directory) if "unfinished" in entry.name]
