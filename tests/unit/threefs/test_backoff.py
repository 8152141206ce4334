import pytest

from tests.harness.seeded_random import SeededRandom
from threefs.backoff import Backoff


def test_limits_double_up_to_the_longest() -> None:
    backoff = Backoff(0.5, 3.0)
    assert [backoff.limit_s(attempt) for attempt in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert backoff.limit_s(100_000) == 3.0


@pytest.mark.parametrize(("jitter", "least"), [(1.0, 0.0), (0.5, 4.0), (0.0, 8.0)])
def test_the_jitter_is_the_part_of_a_pause_that_is_drawn(jitter: float, least: float) -> None:
    random = SeededRandom(1)
    pauses = [Backoff(1.0, 8.0, jitter).pause_s(7, random) for _ in range(1000)]
    assert least <= min(pauses) <= least + 0.1 * (8.0 - least)
    assert 8.0 - 0.1 * (8.0 - least) <= max(pauses) <= 8.0
