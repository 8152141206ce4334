import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_data.curriculum import Curriculum

from threefs.errors import InvalidArgument


@given(
    st.lists(st.integers(0, 50), max_size=300), st.sets(st.integers(0, 60), min_size=1, max_size=5), st.integers(0, 3)
)
def test_short_samples_come_first_and_each_comes_once(lengths: list[int], edges: set[int], epoch: int) -> None:
    rising = tuple(sorted(edges))
    order = Curriculum(np.array(lengths, np.int64), rising)
    numbers = order.numbers(1, epoch, np.arange(order.samples)).tolist()
    assert sorted(numbers) == list(range(len(lengths)))
    stages = [sum(lengths[number] >= edge for edge in rising) for number in numbers]
    assert stages == sorted(stages)
    alone = [int(order.numbers(1, epoch, np.array([place]))[0]) for place in range(len(lengths))]
    assert alone == numbers


def test_a_stage_is_shuffled_in_each_epoch() -> None:
    order = Curriculum(np.array([10] * 100 + [5] * 100), (10,))
    first, second = (order.numbers(1, epoch, np.arange(100)).tolist() for epoch in (0, 1))
    assert sorted(first) == sorted(second) == list(range(100, 200))
    assert first != second != sorted(second)


@pytest.mark.parametrize("edges", [(), (2, 1), (1, 1)])
def test_edges_must_rise(edges: tuple[int, ...]) -> None:
    with pytest.raises(InvalidArgument, match="rise"):
        Curriculum(np.array([1]), edges)


def test_stages_by_other_lengths_are_another_order() -> None:
    lengths = np.arange(1, 50)
    orders = [Curriculum(each, (10,)) for each in (lengths, lengths[::-1], lengths // 2)]
    assert len({order.description for order in orders}) == 3
    assert Curriculum(lengths, (10,)).description == orders[0].description
