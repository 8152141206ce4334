"""Datasets and checkpoints on a cluster of real processes."""

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from threefs_checkpoint import CheckpointManager, load, read_index, save
from threefs_client.blocking.filesystem import FileSystem
from threefs_data import Dataset, Loader, pack, pack_files

from tests.harness.cluster import LocalCluster
from threefs.errors import AlreadyExists, CorruptChunk, NotFound

SAMPLES = [bytes([number % 251]) * (1 + number * 37 % 3000) for number in range(2000)]


@pytest.fixture(scope="module")
def directory(cluster: LocalCluster) -> str:
    with cluster.connect() as fs:
        fs.mkdir("/ml")
        pack(fs, SAMPLES, "/ml/samples", shard_bytes=700_000)
    return "/ml"


def read(fs: FileSystem, path: str, workers: int, start_method: str = "spawn") -> list[tuple[int, bytes]]:
    options = {"seed": 3, "workers": workers, "start_method": start_method}
    with Dataset(fs, path) as dataset, Loader(dataset, global_batch=64, **options) as loader:  # type: ignore[arg-type]
        return [
            (int(number), bytes(sample))
            for batch in loader
            for number, sample in zip(batch.numbers, batch.samples, strict=True)
        ]


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_worker_processes_read_one_shuffled_epoch(fs: FileSystem, directory: str, start_method: str) -> None:
    found = read(fs, f"{directory}/samples", 3, start_method)
    assert sorted(found) == list(enumerate(SAMPLES))
    assert found == read(fs, f"{directory}/samples", 0)
    assert [number for number, _ in found] != list(range(len(SAMPLES)))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_survives_a_storage_service(tmp_path: Path, workers: int) -> None:
    with LocalCluster(tmp_path) as own, own.connect() as fs:
        pack(fs, SAMPLES, "/samples", shard_bytes=700_000)
        found: list[tuple[int, bytes]] = []
        with Loader(Dataset(fs, "/samples"), global_batch=50, workers=workers, start_method="fork") as loader:
            for step, batch in enumerate(loader):
                if step == 10:
                    own.storage[1].kill()
                found += zip(batch.numbers.tolist(), map(bytes, batch.samples), strict=True)
        assert sorted(found) == list(enumerate(SAMPLES))


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


@pytest.mark.parametrize("chunk_bytes", [1 << 20, 256 << 10])
def test_a_checkpoint_comes_back_bit_by_bit(fs: FileSystem, directory: str, chunk_bytes: int) -> None:
    path = f"{directory}/checkpoint-{chunk_bytes}"
    for seed in (1, 2):  # the second replaces the first
        save(fs, path, model(seed), chunk_bytes=chunk_bytes)
        found = load(fs, path)
        assert found.keys() == model(seed).keys()
        for name, array in model(seed).items():
            assert found[name].dtype == array.dtype and found[name].shape == array.shape
            assert found[name].tobytes() == array.tobytes()
    assert fs.stat(f"{path}/data-00000").layout.chunk_bytes == chunk_bytes  # type: ignore[union-attr]
    assert read_index(fs, path).tensors["exact"].shards[0].offset % chunk_bytes == 0
    assert load(fs, path, ["step"])["step"] == 17
    assert not [entry.name for entry in fs.list(directory) if "unfinished" in entry.name]


def turn_over(directory: Path, content: bytes) -> int:
    """Change this content on the disks, below the services; how often it was there."""
    count = 0
    for path in directory.rglob("*.blocks"):
        if path.stat().st_size:
            with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as disk:
                at = disk.find(content)
                while at >= 0:
                    disk[at] ^= 1
                    count += 1
                    at = disk.find(content, at + 1)
    return count


def test_a_checkpoint_that_no_disk_has_undamaged_gives_way_to_the_one_before(tmp_path: Path) -> None:
    with LocalCluster(tmp_path) as own, own.connect() as fs:
        manager = CheckpointManager(fs, "/run")
        for seed in (1, 2):
            manager.save(seed, model(seed))
            manager.wait()
        assert turn_over(tmp_path, model(2)["exact"].tobytes()[-64:]) == 3
        with pytest.raises(CorruptChunk, match="/run/step-000000000002/data-00000"):
            load(fs, "/run/step-000000000002")
        found = manager.resume()
        assert found is not None and found.step == 1
        assert found.tensors["exact"].tobytes() == model(1)["exact"].tobytes()
        manager.save(2, model(3))
        manager.close()
        assert load(fs, "/run/step-000000000002")["exact"].tobytes() == model(3)["exact"].tobytes()
