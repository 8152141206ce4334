import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threefs_data.mixture import BLOCK, Mixture, shares

from threefs.errors import InvalidArgument


def by_source(mixture: Mixture, numbers: list[int]) -> list[list[int]]:
    ends = np.cumsum(mixture.lengths)
    sources = np.searchsorted(ends, numbers, side="right")
    firsts = ends - mixture.lengths
    return [
        [int(number - first) for number, source in zip(numbers, sources, strict=True) if source == index]
        for index, first in enumerate(firsts)
    ]


def test_datasets_have_the_shares_of_their_weights() -> None:
    mixture = Mixture((1000, 5000, 70), (0.7, 0.2, 0.1), 10_000)
    numbers = [n for epoch in range(8) for n in mixture.numbers(3, epoch, np.arange(10_000)).tolist()]
    found = [len(own) / 80_000 for own in by_source(mixture, numbers)]
    assert found == pytest.approx([0.7, 0.2, 0.1], abs=0.01)
    early = [len(own) / 1000 for own in by_source(mixture, numbers[:1000])]
    assert early == pytest.approx([0.7, 0.2, 0.1], abs=0.06)


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.tuples(st.integers(2_000, 30_000), st.floats(0.1, 10)), min_size=1, max_size=4),
    st.integers(0, 1 << 40),
)
def test_a_dataset_gives_each_sample_once_before_any_again(sources: list[tuple[int, float]], seed: int) -> None:
    """At the ends of blocks, where the draws that each dataset had are those before all later ones."""
    lengths, weights = zip(*sources, strict=True)
    mixture = Mixture(tuple(lengths), tuple(weights), BLOCK)
    numbers = [n for epoch in range(2) for n in mixture.numbers(seed, epoch, np.arange(BLOCK)).tolist()]
    for own, length in zip(by_source(mixture, numbers), lengths, strict=True):
        counts = np.bincount(own, minlength=length)
        assert len(counts) == length and counts.max() - counts.min() <= 1


@settings(deadline=None)
@given(st.integers(1, 100_000), st.integers(0, 20), st.lists(st.integers(0, 99_999), min_size=1, max_size=20))
def test_a_place_is_found_without_those_before_it(samples: int, epoch: int, places: list[int]) -> None:
    mixture = Mixture((10, 700), (1, 3), samples)
    at = np.array(places) % samples
    alone = [int(mixture.numbers(5, epoch, np.array([place]))[0]) for place in at.tolist()]
    assert mixture.numbers(5, epoch, at).tolist() == alone


def test_the_order_is_the_same_in_every_version() -> None:
    """A change of this breaks the resumption of trainings that are under way."""
    mixture = Mixture((1000, 10**9), (1, 2), 10**6)
    assert mixture.numbers(42, 3, np.array([0, 1, 2, 999_999])).tolist() == [977362690, 632488520, 374037335, 855317361]


def test_shares_fill_a_block() -> None:
    assert shares([1, 1]) == [BLOCK // 2, BLOCK // 2]
    assert sum(shares([0.1] * 7 + [3.3])) == BLOCK


@pytest.mark.parametrize(
    ("lengths", "weights", "samples", "message"),
    [
        ((), (), 1, "at least one"),
        ((1, 2), (1,), 1, "one for each"),
        ((1, 0), (1, 1), 1, "without samples"),
        ((1, 1), (1, 0), 1, "positive"),
        ((1, 1), (1, float("nan")), 1, "positive"),
        ((1, 1), (1, float("inf")), 1, "positive"),
        ((1, 1), (1, 1e-9), 1, "too small"),
        ((1,), (1,), 0, "epoch of 0"),
    ],
)
def test_impossible_mixtures_are_refused(
    lengths: tuple[int, ...], weights: tuple[float, ...], samples: int, message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Mixture(lengths, weights, samples)


def test_other_weights_are_another_order() -> None:
    assert Mixture((5, 5), (1, 1), 10).description == Mixture((5, 5), (2, 2), 10).description
    others = [Mixture((5, 5), (1, 2), 10), Mixture((5, 6), (1, 1), 10), Mixture((5, 5), (1, 1), 11)]
    assert len({mixture.description for mixture in others}) == 3


def test_numbers_of_numpy_are_numbers() -> None:
    plain = Mixture((5, 7), (1, 3), 10)
    assert Mixture(np.array([5, 7]), np.array([1, 3]), np.int32(10)).description == plain.description  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"samples is a whole number, not 10\.0"):
        Mixture((5, 7), (1, 3), 10.0)  # type: ignore[arg-type]
