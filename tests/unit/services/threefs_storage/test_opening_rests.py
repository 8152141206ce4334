"""The attempts to open stores that fail slowly are far apart, and each store has its turn."""

import pytest
from threefs_storage.opening_rests import OpeningRests

from threefs.ids import TargetId

FIRST, SECOND, OTHER = TargetId(101), TargetId(102), TargetId(103)


def test_one_that_fails_at_once_rests_never() -> None:
    rests = OpeningRests()
    rests.note(FIRST, 10.0, 10.5)
    assert not rests.holds(FIRST, 10.5)


@pytest.mark.parametrize(
    ("taken_s", "rest_s"), [(1.5, 10.0), (10.5, 100.0), (60.0, 300.0), (900.0, 900.0), (36000.0, 3600.0)]
)
def test_they_rest_as_long_as_attempts_take_or_longer(taken_s: float, rest_s: float) -> None:
    rests = OpeningRests()
    rests.note(FIRST, 0.0, taken_s)
    assert rests.holds(FIRST, taken_s + rest_s - 0.1) and not rests.holds(FIRST, taken_s + rest_s)
    assert not rests.holds(OTHER, taken_s), "it has not failed"


def test_all_that_failed_slowly_rest_after_each_failure() -> None:
    rests = OpeningRests()
    rests.note(FIRST, 0.0, 1.5)
    rests.note(SECOND, 1.5, 3.0)
    assert rests.holds(FIRST, 12.9) and not rests.holds(FIRST, 13.0)
    rests.note(FIRST, 13.0, 14.5)
    assert rests.holds(SECOND, 24.4) and not rests.holds(SECOND, 24.5)
    rests.discard(SECOND)
    assert rests.holds(FIRST, 20.0) and not rests.holds(SECOND, 20.0)


def test_the_one_that_has_waited_longest_is_the_next() -> None:
    rests = OpeningRests()
    rests.note(FIRST, 0.0, 1.5)
    rests.note(SECOND, 1.5, 3.0)
    assert rests.in_turn([SECOND, FIRST, OTHER]) == [OTHER, FIRST, SECOND]
    rests.note(FIRST, 13.0, 14.5)
    assert rests.in_turn([FIRST, SECOND]) == [SECOND, FIRST]
