import numpy as np
from threefs_data.order import Sequential, Shuffled
from threefs_data.permutation import Permutation


def test_every_epoch_has_each_sample_once_in_an_order_of_its_own() -> None:
    order = Shuffled(1000)
    first, second, other = (
        order.numbers(seed, epoch, np.arange(1000)).tolist() for seed, epoch in [(1, 0), (1, 1), (2, 0)]
    )
    assert sorted(first) == sorted(second) == sorted(other) == list(range(1000))
    assert len({tuple(first), tuple(second), tuple(other)}) == 3
    assert first == Permutation(1000, 1, 0)(np.arange(1000)).tolist()


def test_a_place_is_found_without_those_before_it() -> None:
    order = Shuffled(10**9)
    whole = order.numbers(1, 2, np.arange(10**9 - 10, 10**9))
    assert [int(order.numbers(1, 2, np.array([place]))[0]) for place in range(10**9 - 10, 10**9)] == whole.tolist()


def test_the_order_of_the_dataset() -> None:
    assert Sequential(5).numbers(1, 2, np.arange(1, 4)).tolist() == [1, 2, 3]
    assert len({Sequential(5).description, Sequential(6).description, Shuffled(5).description}) == 3
