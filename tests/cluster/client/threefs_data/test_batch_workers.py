import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from threefs_data import Dataset, pack
from threefs_data.batch import Batch
from threefs_data.batch_workers import BatchWorkers

from tests.harness.local_files import LocalFiles
from threefs.errors import Corrupt, Internal, NotFound, Unavailable

SAMPLES = [bytes([number % 251]) * (number % 300) for number in range(1000)]


@pytest.fixture
def fs(tmp_path: Path) -> LocalFiles:
    files = LocalFiles(str(tmp_path))
    pack(files, SAMPLES, "/ds", shard_bytes=20_000)
    return files


@pytest.fixture
def workers(fs: LocalFiles) -> Iterator[BatchWorkers]:
    found = BatchWorkers(Dataset(fs, "/ds"), 2, "fork")
    yield found
    found.close()
    assert multiprocessing.active_children() == []


def read(workers: BatchWorkers, numbers: list[int]) -> list[bytes]:
    batch = workers.receive(workers.submit(numbers))
    assert batch.numbers.tolist() == numbers
    return [bytes(sample) for sample in batch.samples]


def test_batches_are_read_side_by_side_and_taken_in_any_order(workers: BatchWorkers) -> None:
    tickets = [workers.submit([number, 999 - number]) for number in range(10)]
    for number in (3, 9, 0, 1, 2, 4, 5, 6, 7, 8):
        found = workers.receive(tickets[number])
        assert [bytes(sample) for sample in found.samples] == [SAMPLES[number], SAMPLES[999 - number]]


def test_a_batch_that_is_larger_than_its_slot_gets_a_larger_one(workers: BatchWorkers) -> None:
    for _ in range(3):
        assert read(workers, [299] * 50) == [SAMPLES[299]] * 50
        assert read(workers, [0]) == [b""]
        assert read(workers, []) == []
        assert read(workers, list(range(1000))) == SAMPLES


def test_memory_is_used_again_but_not_while_a_batch_is_kept(workers: BatchWorkers) -> None:
    kept = [workers.receive(workers.submit([number])) for number in range(20)]
    assert [bytes(batch.samples[0]) for batch in kept] == SAMPLES[:20]
    assert workers._slots == 20
    del kept
    for number in range(100):
        assert read(workers, [number]) == [SAMPLES[number]]
    assert workers._slots == 20


def test_batches_outlive_the_workers(fs: LocalFiles) -> None:
    workers = BatchWorkers(Dataset(fs, "/ds"), 1, "fork")
    batch = workers.receive(workers.submit([7]))
    workers.close()
    assert bytes(batch.samples[0]) == SAMPLES[7]


def test_a_discarded_batch_leaves_its_memory_to_others(workers: BatchWorkers) -> None:
    for _ in range(4):
        workers.discard(workers.submit([1, 2, 3]))
    assert workers._slots == 2


def test_more_batches_than_pipes_have_room_for_are_ahead_of_the_training(fs: LocalFiles) -> None:
    """Both processes waited for the other one to take what they sent."""
    workers = BatchWorkers(Dataset(fs, "/ds"), 1, "fork")
    tickets = [workers.submit([number]) for number in range(1000)]
    for number, ticket in enumerate(tickets):
        assert bytes(workers.receive(ticket).samples[0]) == SAMPLES[number]
    workers.close()


def test_batches_that_no_worker_has_begun_are_discarded_unread(workers: BatchWorkers) -> None:
    tickets = [workers.submit([number % 200]) for number in range(2000)]
    for ticket in reversed(tickets):
        workers.discard(ticket)
    assert read(workers, [7]) == [SAMPLES[7]]
    assert 32 <= workers._slots < 1000, "some may have been read before the last was asked for"


def test_a_training_that_keeps_more_batches_than_it_may_have_descriptors_is_told_so(workers: BatchWorkers) -> None:
    """It waited for a worker that lived, and that waited for a descriptor."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    kept: list[Batch] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 40, before[1]))
    try:
        with pytest.raises(Unavailable, match="Too many open files; a batch that the training keeps"):
            while len(kept) < 100:
                kept.append(workers.receive(workers.submit([len(kept)])))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert workers.is_broken
    assert [bytes(batch.samples[0]) for batch in kept] == SAMPLES[: len(kept)]


def test_an_error_leaves_its_memory_to_others(fs: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "ds" / "shard-00000.records").write_bytes(b"nonsense")
    workers = BatchWorkers(Dataset(fs, "/ds"), 1, "fork")
    for _ in range(5):
        with pytest.raises(Corrupt):
            read(workers, [0])
    assert workers._slots == 1
    workers.close()


class Held(LocalFiles):
    """Reads when it has a file `go`."""

    def read_batch(self, *arguments: object, **named: object) -> list[memoryview]:
        while not self._at("go").exists():
            time.sleep(0.01)
        return super().read_batch(*arguments, **named)  # type: ignore[arg-type]


def test_a_wait_that_was_broken_off_leaves_its_memory_to_others(fs: LocalFiles, tmp_path: Path) -> None:
    workers = BatchWorkers(Dataset(Held(fs.root), "/ds"), 1, "fork")
    ticket = workers.submit([1])
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with pytest.raises(KeyboardInterrupt):
        workers.receive(ticket)
    signal.signal(signal.SIGALRM, before)
    (tmp_path / "go").touch()
    assert not workers.is_broken and read(workers, [7]) == [SAMPLES[7]]
    tickets = [workers.submit([number]) for number in (8, 9)]
    assert [bytes(workers.receive(each).samples[0]) for each in tickets] == SAMPLES[8:10]
    assert workers._slots == 2
    workers.close()


def test_an_error_arrives_and_the_worker_goes_on(fs: LocalFiles, tmp_path: Path) -> None:
    shard = tmp_path / "ds" / "shard-00000.records"
    content = shard.read_bytes()
    shard.write_bytes(b"nonsense")
    workers = BatchWorkers(Dataset(fs, "/ds"), 1, "fork")
    with pytest.raises(Corrupt, match="shard-00000"):
        read(workers, [0])
    shard.write_bytes(content)
    assert read(workers, [5]) == [SAMPLES[5]]
    workers.close()


def test_an_error_that_has_a_name_of_any_bytes_arrives(fs: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "ds").rename(tmp_path / "ds\udcff")
    workers = BatchWorkers(Dataset(fs, "/ds\udcff"), 1, "fork")
    (tmp_path / "ds\udcff" / "shard-00000.records").write_bytes(b"nonsense")
    with pytest.raises(Corrupt, match=r"ds.*shard-00000"):
        read(workers, [0])
    workers.close()


class Broken(LocalFiles):
    def read_batch(self, *_: object, **__: object) -> list[memoryview]:
        raise KeyError("a bug")


def test_an_unexpected_error_arrives(fs: LocalFiles) -> None:
    workers = BatchWorkers(Dataset(Broken(fs.root), "/ds"), 1, "fork")
    with pytest.raises(Internal, match="a bug"):
        read(workers, [0])
    workers.close()


def test_a_dataset_that_the_worker_cannot_open_is_an_error(fs: LocalFiles, tmp_path: Path) -> None:
    dataset = Dataset(fs, "/ds")
    (tmp_path / "ds").rename(tmp_path / "elsewhere")
    workers = BatchWorkers(dataset, 1, "fork")
    with pytest.raises(NotFound):
        read(workers, [0])
    workers.close()


class Deadly(LocalFiles):
    def read_batch(self, *_: object, **__: object) -> list[memoryview]:
        os.kill(os.getpid(), signal.SIGKILL)
        return []


def test_the_death_of_a_worker_is_an_error_and_not_an_end(fs: LocalFiles) -> None:
    workers = BatchWorkers(Dataset(Deadly(fs.root), "/ds"), 2, "fork")
    tickets = [workers.submit([0]) for _ in range(2)]
    with pytest.raises(Unavailable, match="exit code -9"):
        workers.receive(tickets[0])
    with pytest.raises(Unavailable, match="exit code -9"):
        workers.submit([0])
    workers.close()


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_an_interruption_of_the_training_leaves_the_workers_to_it(fs: LocalFiles, start_method: str) -> None:
    """A notebook goes on after Ctrl-C, which all processes of the terminal get, also those that have just begun."""
    workers = BatchWorkers(Dataset(fs, "/ds"), 2, start_method)
    for _ in range(2):
        for process in multiprocessing.active_children():
            os.kill(process.pid or 0, signal.SIGINT)
        for number in range(10):
            assert read(workers, [number]) == [SAMPLES[number]]
    workers.close()
