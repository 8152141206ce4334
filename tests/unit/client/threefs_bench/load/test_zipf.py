import numpy as np
import pytest
from threefs_bench.load.zipf import Zipf


@pytest.mark.parametrize("theta", [0.5, 0.99, 1.0, 1.1, 2.5])
def test_ranks_come_as_zipf_s_law_says(theta: float) -> None:
    ranks, draws = 50, 200_000
    drawn = Zipf(ranks, theta, np.random.default_rng(1)).draw(draws)
    assert drawn.min() == 0 and drawn.max() < ranks
    weights = np.arange(1, ranks + 1, dtype=float) ** -theta
    expected = weights / weights.sum() * draws
    found = np.bincount(drawn, minlength=ranks)
    assert (np.abs(found - expected) < 6 * np.sqrt(expected) + 6).all()


def test_any_number_of_ranks_and_draws() -> None:
    random = np.random.default_rng(1)
    assert Zipf(1, 1.1, random).draw(5).tolist() == [0] * 5
    assert len(Zipf(10, 1.1, random).draw(0)) == 0
    huge = Zipf(1 << 40, 1.1, random).draw(10_000)
    assert huge.max() > 1 << 20 and huge.max() < 1 << 40 and (huge == 0).sum() > 500
