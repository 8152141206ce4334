import pytest
from threefs_checkpoint.save_interval import Every

from threefs.errors import InvalidArgument


def test_by_steps() -> None:
    every = Every(steps=100)
    assert not every.is_due(99, 0, 1e9, 0) and every.is_due(100, 0, 0, 0) and every.is_due(230, 199, 0, 0)
    assert not every.is_due(200, 200, 0, 0) and not every.is_due(299, 200, 0, 0)


def test_by_time() -> None:
    every = Every(seconds=300)
    assert not every.is_due(10**6, 0, 299.9, 0) and every.is_due(1, 0, 300, 0) and every.is_due(1, 1, 900, 600)


def test_whichever_ends_first() -> None:
    every = Every(seconds=300, steps=10)
    assert every.is_due(10, 0, 1, 0) and every.is_due(1, 0, 300, 0) and not every.is_due(1, 0, 1, 0)


@pytest.mark.parametrize(("seconds", "steps"), [(0, 0), (-1, 5), (5, -1)])
def test_an_interval_is_above_zero(seconds: float, steps: int) -> None:
    with pytest.raises(InvalidArgument, match="above 0"):
        Every(seconds, steps)
