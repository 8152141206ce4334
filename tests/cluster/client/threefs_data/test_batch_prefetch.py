from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from threefs_data import Dataset, pack
from threefs_data.batch_prefetch import ReadAhead
from threefs_data.batch_workers import BatchWorkers

from tests.harness.children import in_child
from tests.harness.local_files import LocalFiles
from threefs.errors import InvalidArgument

SAMPLES = [b"%d" % number for number in range(100)]


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    files = LocalFiles(str(tmp_path))
    pack(files, SAMPLES, "/ds")
    return Dataset(files, "/ds")


@pytest.mark.parametrize("workers", [0, 2])
def test_it_reads_as_far_ahead_as_it_is_told(dataset: Dataset, workers: int) -> None:
    ahead = ReadAhead(dataset, workers=workers, depth=3, start_method="fork")
    begun: list[int] = []

    def plan() -> object:
        for number in range(10):
            begun.append(number)
            yield [number, 99 - number], number

    taken = 0
    for batch, number in ahead.batches(plan()):  # type: ignore[arg-type, var-annotated]
        assert number == taken
        assert [bytes(sample) for sample in batch.samples] == [SAMPLES[number], SAMPLES[99 - number]]
        taken += 1
        assert len(begun) == min(10, taken + 3)
    assert taken == 10
    ahead.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_it_may_be_left_early_and_used_again(dataset: Dataset, workers: int) -> None:
    ahead = ReadAhead(dataset, workers=workers, depth=0, start_method="fork")
    for _ in range(3):
        for batch, beside in ahead.batches(([number], "x") for number in range(50)):
            assert beside == "x"
            if batch.numbers[0] == 5:
                break
    ahead.close()
    ahead.close()


class Interrupted:
    """A pipe in the midst of whose messages Ctrl-C comes."""

    def __init__(self, pipe: Any, call: str) -> None:
        self._pipe = pipe
        self._call = call

    def __getattr__(self, name: str) -> Any:
        if name != self._call:
            return getattr(self._pipe, name)

        def interrupted(*arguments: Any) -> None:
            getattr(self._pipe, name)(*arguments)
            raise KeyboardInterrupt

        return interrupted


@pytest.mark.parametrize("call", ["send_bytes", "recv_bytes"])
def test_after_a_message_that_was_broken_off_there_are_other_workers(dataset: Dataset, call: str) -> None:
    ahead = ReadAhead(dataset, workers=1, depth=2, start_method="fork")
    plan = [([number], number) for number in range(9)]
    assert len(list(ahead.batches(plan))) == 9
    assert isinstance(ahead._readers, BatchWorkers)
    worker = ahead._readers._workers[0]
    worker.pipe, pipe = Interrupted(worker.pipe, call), worker.pipe  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        list(ahead.batches(plan))
    assert not worker.process.is_alive() and pipe.closed
    assert [batch.numbers.tolist() for batch, _ in ahead.batches(plan)] == [[number] for number in range(9)]
    ahead.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_close_in_the_middle_is_said(dataset: Dataset, workers: int) -> None:
    ahead = ReadAhead(dataset, workers=workers, depth=1, start_method="fork")
    batches = ahead.batches(([number], "x") for number in range(50))
    next(batches)
    ahead.close()
    with pytest.raises(InvalidArgument, match="the loader was closed while batches were taken from it"):
        next(batches)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_forked_child_takes_no_batch_of_its_parent(dataset: Dataset, workers: int) -> None:
    ahead = ReadAhead(dataset, workers=workers, depth=4, start_method="fork")
    batches = ahead.batches(([number], number) for number in range(50))
    assert next(batches)[1] == 0

    def goes_on() -> None:
        with pytest.raises(InvalidArgument, match="taken by a forked child; iterate anew"):
            next(batches)
        assert isinstance(batches, Generator)
        batches.close()

    def begins_anew() -> None:
        found = [bytes(batch.samples[0]) for batch, _ in ahead.batches(([number], "x") for number in range(50))]
        assert found == SAMPLES[:50]
        ahead.close()

    assert [in_child(work) for work in (goes_on, begins_anew, ahead.close)] == [0, 0, 0]
    assert [beside for _, beside in batches] == list(range(1, 50))
    ahead.close()


def test_impossible_values_are_refused(dataset: Dataset) -> None:
    for workers, depth in [(-1, 1), (1, -1)]:
        with pytest.raises(InvalidArgument, match="not possible"):
            ReadAhead(dataset, workers=workers, depth=depth, start_method="fork")
