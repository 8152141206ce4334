import multiprocessing
import os
import signal
from pathlib import Path

import pytest
from threefs_data import Epoch, batches, pack
from threefs_data.format import shard_name
from threefs_data.loader import Batch, decode, encode

from tests.harness.local_files import LocalFiles
from threefs.errors import Corrupt, Internal, InvalidArgument, NotFound, Unavailable

SAMPLES = [bytes([number % 251]) * (number % 300) for number in range(1000)]


@pytest.fixture
def fs(tmp_path: Path) -> LocalFiles:
    files = LocalFiles(str(tmp_path))
    pack(files, SAMPLES, "/ds", shard_bytes=20_000)
    return files


def read(fs: LocalFiles, epoch: Epoch, workers: int, start_method: str = "fork") -> list[tuple[int, bytes]]:
    found = batches(fs, "/ds", epoch, batch_size=32, workers=workers, start_method=start_method)
    return [
        (number, bytes(sample)) for batch in found for number, sample in zip(batch.numbers, batch.samples, strict=True)
    ]


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_worker_processes_read_the_same_epoch_as_one(fs: LocalFiles, start_method: str) -> None:
    epoch = Epoch(seed=5, epoch=1)
    alone = read(fs, epoch, 0)
    assert sorted(alone) == list(enumerate(SAMPLES))
    assert [number for number, _ in alone] != sorted(number for number, _ in alone)
    assert read(fs, epoch, 4, start_method) == alone


def test_ranks_share_the_samples(fs: LocalFiles) -> None:
    parts = [read(fs, Epoch(rank=rank, world=3), 2) for rank in range(3)]
    assert sorted(row for part in parts for row in part) == list(enumerate(SAMPLES))


def test_more_workers_than_batches(fs: LocalFiles) -> None:
    found = batches(fs, "/ds", Epoch(), batch_size=1000, workers=3, start_method="fork")
    assert [len(batch.numbers) for batch in found] == [1000]


def test_workers_end_when_the_reader_stops_early(fs: LocalFiles) -> None:
    pack(fs, [bytes(8192)] * 300, "/large")  # more than pipes hold, so no worker can have come to its end
    found = batches(fs, "/large", Epoch(), batch_size=10, workers=3, start_method="fork")
    next(found)
    assert len(multiprocessing.active_children()) == 3
    found.close()  # type: ignore[attr-defined]
    assert multiprocessing.active_children() == []


def test_an_error_of_a_worker_arrives(fs: LocalFiles, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        next(batches(fs, "/nowhere", Epoch(), batch_size=10, workers=1, start_method="fork"))
    (tmp_path / "ds" / shard_name(0)).write_bytes(b"nonsense")
    with pytest.raises(Corrupt, match="shard-00000"):
        read(fs, Epoch(), 2)


class Broken(LocalFiles):
    def read_batch(self, *_: object, **__: object) -> list[memoryview]:
        raise KeyError("a bug")


def test_an_unexpected_error_of_a_worker_arrives(fs: LocalFiles) -> None:
    with pytest.raises(Internal, match="a bug"):
        read(Broken(fs.root), Epoch(), 1)


class Deadly(LocalFiles):
    def read_batch(self, *_: object, **__: object) -> list[memoryview]:
        os.kill(os.getpid(), signal.SIGKILL)
        return []


def test_the_death_of_a_worker_is_an_error_and_not_an_end(fs: LocalFiles) -> None:
    with pytest.raises(Unavailable, match="exit code -9"):
        read(Deadly(fs.root), Epoch(), 2)


def test_impossible_values_are_refused(fs: LocalFiles) -> None:
    with pytest.raises(InvalidArgument):
        batches(fs, "/ds", Epoch(), batch_size=1, workers=-1)


def test_a_batch_comes_back_and_a_cut_one_does_not() -> None:
    batch = Batch([7, 1 << 40, 0], [memoryview(b"abc"), memoryview(b""), memoryview(b"d")])
    content = encode(batch)
    assert decode(content) == batch
    assert decode(encode(Batch([], []))) == Batch([], [])
    for length in range(5, len(content)):
        with pytest.raises(Corrupt):
            decode(content[:length])
