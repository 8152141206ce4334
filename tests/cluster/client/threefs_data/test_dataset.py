import gc
import multiprocessing
import pickle
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from threefs_data import Dataset, pack
from threefs_data.format import shard_name
from threefs_data.tables import PagedTables, WholeTables

from tests.harness import dataset_version_1
from tests.harness.local_files import LocalFiles
from threefs.env import loop_thread
from threefs.errors import Corrupt, InvalidArgument, NotFound

SAMPLES = [bytes([number % 251]) * (number * 7 % 50) for number in range(200)]


@pytest.fixture(params=[1, 2])
def fs(tmp_path: Path, request: pytest.FixtureRequest) -> LocalFiles:
    files = LocalFiles(str(tmp_path))
    if request.param == 1:
        dataset_version_1.write(tmp_path / "ds", SAMPLES, 40)
    else:
        assert pack(files, SAMPLES, "/ds", shard_bytes=5000) == len(SAMPLES)
    return files


def test_samples_are_read_by_number_in_any_order(fs: LocalFiles) -> None:
    with Dataset(fs, "/ds/") as dataset:
        assert len(dataset) == 200 and len(dataset.index.shards) >= 5
        numbers = [199, 0, 7, 7, 100]
        assert [bytes(sample) for sample in dataset.read(numbers)] == [SAMPLES[number] for number in numbers]
        assert dataset.read([]) == []
        assert dataset[5] == SAMPLES[5]
        assert dataset.__getitems__([1, 2]) == SAMPLES[1:3]


def test_another_process_gets_a_dataset_of_its_own(fs: LocalFiles) -> None:
    with Dataset(fs, "/ds", tables_bytes=5) as dataset:
        assert dataset[5] == SAMPLES[5]
        with pickle.loads(pickle.dumps(dataset)) as copy:  # noqa: S301
            assert not copy._open and copy._tables_bytes == 5
            assert copy[5] == SAMPLES[5]


class Meeting(LocalFiles):
    """Several threads read at the same time, if they can."""

    together: threading.Barrier

    def read_batch(self, rows: Sequence[tuple[Any, int, int]], into: Any = None) -> list[memoryview]:
        views = super().read_batch(rows, into)
        with suppress(threading.BrokenBarrierError):
            self.together.wait(timeout=0.1)
        return views


def test_threads_share_a_dataset(fs: LocalFiles) -> None:
    files = Meeting(fs.root)
    files.together = threading.Barrier(2)
    with Dataset(files, "/ds") as dataset, ThreadPoolExecutor(2) as threads:
        assert list(threads.map(dataset.__getitem__, [0, 0])) == SAMPLES[:1] * 2
        assert [dataset[number] for number in [*range(0, 200, 25), 0]] == [*SAMPLES[::25], SAMPLES[0]]


class FilesLikeThoseOfAClient(LocalFiles):
    """What closes a file takes the lock of the process, as files of a client do where they connect anew in a child."""

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        file = super().open(path, mode, **options)
        weakref.finalize(file, self._closed)
        return file

    @staticmethod
    def _closed() -> None:
        with loop_thread.process_lock():
            pass


def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent(fs: LocalFiles, tmp_path: Path) -> None:
    with Dataset(FilesLikeThoseOfAClient(str(tmp_path)), "/ds") as dataset:
        assert dataset[0] == SAMPLES[0]
        child = multiprocessing.get_context("fork").Process(target=dataset.__getitem__, args=(150,))
        with dataset._lock:
            child.start()
        child.join(timeout=10)
        child.kill()
        assert child.exitcode == 0


def test_a_dataset_that_is_dropped_is_freed_at_once(fs: LocalFiles) -> None:
    """Its files waited for the garbage collector, which may run in any thread."""
    dataset = Dataset(fs, "/ds")
    assert dataset[0] == SAMPLES[0]
    dataset.close()
    gone = weakref.ref(dataset)
    gc.disable()
    try:
        del dataset
        assert gone() is None
    finally:
        gc.enable()


def test_another_dataset_under_its_path_is_never_taken_for_it(fs: LocalFiles) -> None:
    with Dataset(fs, "/ds") as dataset:
        assert dataset[0] == SAMPLES[0]
        pickled = pickle.dumps(dataset)
        fs.rename("/ds", "/old")
        pack(fs, [b"x" + each for each in SAMPLES], "/ds", shard_bytes=5000)
        assert dataset[0] == SAMPLES[0]  # what is open stays open
        with pytest.raises((InvalidArgument, Corrupt), match=r"/ds was removed or replaced|has format version 2"):
            dataset.read([0, len(SAMPLES) - 1])
    with pytest.raises(InvalidArgument, match="/ds was removed or replaced"):
        pickle.loads(pickled)  # noqa: S301


def test_memory_for_tables_is_bounded(fs: LocalFiles) -> None:
    with Dataset(fs, "/ds", tables_bytes=1200) as dataset:
        for number in [*range(200), *reversed(range(200))]:
            assert dataset[number] == SAMPLES[number]
            if isinstance(dataset.tables, WholeTables):
                kept = [table.nbytes for table in dataset.tables.tables.values()]
                assert len(kept) == 1 or sum(kept) <= 1200
            elif isinstance(dataset.tables, PagedTables):
                assert [len(cache) for cache in dataset.tables.caches] <= [0, 2]
        assert dataset.__getitems__(range(200)) == SAMPLES  # a batch may need more than that


def test_lengths_of_all_samples(fs: LocalFiles) -> None:
    with Dataset(fs, "/ds") as dataset:
        assert dataset.lengths().tolist() == [len(sample) for sample in SAMPLES]
        assert sum(map(len, SAMPLES)) < dataset.batch_bytes(200)
    pack(fs, [], "/empty")
    assert Dataset(fs, "/empty").lengths().tolist() == []


def test_samples_of_one_length_need_no_lengths(fs: LocalFiles, tmp_path: Path) -> None:
    samples = [bytes([number]) * 100 for number in range(50)]
    pack(fs, samples, "/fixed", shard_bytes=5000)
    with Dataset(fs, "/fixed") as dataset:
        assert dataset.__getitems__(range(50)) == samples
        for number, shard in enumerate(dataset.index.shards):
            assert not shard.has_lengths
            assert (tmp_path / "fixed" / shard_name(number)).stat().st_size == 4096 + shard.samples * 100 + 512


def test_samples_across_the_ends_of_chunks(fs: LocalFiles) -> None:
    samples = [bytes([number]) * (300_000 * (number % 9)) for number in range(20)]
    pack(fs, samples, "/large", shard_bytes=10_000_000)
    with Dataset(fs, "/large") as dataset:
        assert dataset.__getitems__([19, *range(20)]) == [samples[19], *samples]


def test_numbers_out_of_range_are_refused(fs: LocalFiles) -> None:
    for number in (-1, 200):
        with pytest.raises(InvalidArgument, match=str(number)):
            Dataset(fs, "/ds").read([0, number])


@pytest.mark.parametrize("numbers", [[1.5], ["a"], [None], [True], [1 << 64], [[1, 2]]])
def test_what_is_no_number_of_a_sample_is_refused(fs: LocalFiles, numbers: Any) -> None:
    """1.5 was sample 1."""
    with Dataset(fs, "/ds") as dataset, pytest.raises(InvalidArgument, match="a row of whole numbers from 0 to 199"):
        dataset.read(numbers)
    with Dataset(fs, "/ds") as dataset, pytest.raises(InvalidArgument, match="there is no sample 9223372036854775808"):
        dataset.read([1 << 63])


def test_a_missing_dataset_is_not_found(fs: LocalFiles) -> None:
    with pytest.raises(NotFound, match=r"/other is no dataset: there is no file /other/dataset.index"):
        Dataset(fs, "/other")


@pytest.mark.parametrize(
    ("offset", "message"), [(0, "not a shard"), (4100, "does not match its checksum"), (-5, "table")]
)
def test_damage_in_a_shard_is_noticed(fs: LocalFiles, tmp_path: Path, offset: int, message: str) -> None:
    shard = tmp_path / "ds" / shard_name(0)
    content = bytearray(shard.read_bytes())
    version = (tmp_path / "ds" / "dataset.index").read_bytes()[8]
    content[100 if version == 1 and offset > 100 else offset] ^= 1
    shard.write_bytes(content)
    with Dataset(fs, "/ds") as dataset, pytest.raises(Corrupt, match=message):
        dataset.read(range(dataset.index.shards[0].samples))


def test_a_shard_that_was_cut_short_is_noticed(fs: LocalFiles, tmp_path: Path) -> None:
    shard = tmp_path / "ds" / shard_name(0)
    shard.write_bytes(shard.read_bytes()[:-1])
    with Dataset(fs, "/ds") as dataset, pytest.raises(Corrupt, match="table"):
        dataset.read([dataset.index.shards[0].samples - 1])


def test_samples_that_were_cut_short_are_noticed(fs: LocalFiles, tmp_path: Path) -> None:
    pack(fs, [bytes(100)] * 10, "/fixed")
    shard = tmp_path / "fixed" / shard_name(0)
    with Dataset(fs, "/fixed") as dataset:
        dataset.read([3])
        shard.write_bytes(shard.read_bytes()[:5000])
        with pytest.raises(Corrupt, match="ends before 5096 bytes"):
            dataset.read([3, 9])


def test_shards_in_each_others_place_are_noticed(fs: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "ds" / shard_name(0)).write_bytes((tmp_path / "ds" / shard_name(1)).read_bytes())
    with pytest.raises(Corrupt):
        Dataset(fs, "/ds").read([0])
