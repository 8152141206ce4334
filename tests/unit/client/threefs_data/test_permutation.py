import numpy as np
import pytest
from threefs_data.permutation import Permutation, in_epochs

from threefs.errors import InvalidArgument


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1000, 4097, 100_000])
def test_every_number_appears_once(length: int) -> None:
    shuffled = Permutation(length, seed=7, epoch=3)(np.arange(length))
    assert sorted(shuffled.tolist()) == list(range(length))


def test_the_order_is_the_same_on_every_machine_and_in_every_version() -> None:
    """A change of this breaks the resumption of trainings that are under way."""
    assert Permutation(10, seed=0, epoch=0)(np.arange(10)).tolist() == [9, 6, 5, 0, 2, 7, 3, 1, 8, 4]
    large = Permutation(1_000_000_007, seed=42, epoch=1)
    assert large(np.array([0, 1, 2, 1_000_000_006])).tolist() == [
        97764117,
        776666566,
        287527924,
        322080649,
    ]


@pytest.mark.parametrize("length", [1, 5, 17, 1000])
def test_places_of_many_epochs_at_a_time_are_those_of_each(length: int) -> None:
    epochs = np.random.default_rng(1).integers(0, 40, 500)
    places = np.random.default_rng(2).integers(0, length, 500)
    expected = [int(Permutation(length, 9, int(e))(np.array([p]))[0]) for e, p in zip(epochs, places, strict=True)]
    assert in_epochs(length, 9, epochs, places).tolist() == expected


def test_places_can_be_asked_for_in_any_portions() -> None:
    order = Permutation(1000, seed=1, epoch=1)
    whole = order(np.arange(1000)).tolist()
    assert [int(order(np.array([place]))[0]) for place in range(1000)] == whole


def test_seeds_and_epochs_give_other_orders() -> None:
    places = np.arange(1000)
    orders = {tuple(Permutation(1000, seed, epoch)(places).tolist()) for seed in range(5) for epoch in range(5)}
    assert len(orders) == 25


def test_samples_are_spread_evenly() -> None:
    """Each of 16 samples stands first in about a sixteenth of the epochs, and neighbours do not stay neighbours."""
    first = [int(Permutation(16, 0, epoch)(np.array([0]))[0]) for epoch in range(3200)]
    counts = np.bincount(first, minlength=16)
    assert counts.min() > 130 and counts.max() < 270  # expected 200 each, standard deviation 14
    order = Permutation(100_000, 0, 0)(np.arange(100_000)).astype(np.int64)
    assert np.count_nonzero(np.abs(np.diff(order)) == 1) < 20  # expected 2
    assert abs(np.corrcoef(order, np.arange(100_000))[0, 1]) < 0.02


@pytest.mark.parametrize(("length", "seed", "epoch"), [(-1, 0, 0), (1 << 48, 0, 0), (1, -1, 0), (1, 0, 1 << 63)])
def test_impossible_values_are_refused(length: int, seed: int, epoch: int) -> None:
    with pytest.raises(InvalidArgument):
        Permutation(length, seed, epoch)
