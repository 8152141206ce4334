import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_data.epochs import Epoch

from threefs.errors import InvalidArgument


@given(st.integers(0, 300), st.integers(1, 7), st.integers(1, 20), st.integers(1, 4), st.booleans())
def test_all_ranks_and_workers_together_read_each_sample_once(
    samples: int, world: int, batch_size: int, workers: int, shuffle: bool
) -> None:
    seen: list[int] = []
    for rank in range(world):
        epoch = Epoch(seed=1, epoch=2, rank=rank, world=world, shuffle=shuffle)
        own = [
            number
            for worker in range(workers)
            for batch in epoch.batches(samples, batch_size, first=worker, step=workers)
            for number in batch
        ]
        assert len(own) == epoch.length(samples)
        assert abs(len(own) - samples / world) < 1
        seen += own
    assert sorted(seen) == list(range(samples))


def test_batches_are_full_but_for_the_last() -> None:
    assert [len(batch) for batch in Epoch(rank=1, world=2).batches(21, 4)] == [4, 4, 2]


def test_without_shuffling_the_order_is_that_of_the_dataset() -> None:
    assert list(Epoch(shuffle=False).batches(5, 2)) == [[0, 1], [2, 3], [4]]
    assert list(Epoch(shuffle=False, rank=1, world=2).batches(5, 2)) == [[1, 3]]


def test_impossible_values_are_refused() -> None:
    for rank, world in [(0, 0), (-1, 1), (1, 1)]:
        with pytest.raises(InvalidArgument):
            Epoch(rank=rank, world=world)
    with pytest.raises(InvalidArgument):
        next(Epoch().batches(5, 0))
