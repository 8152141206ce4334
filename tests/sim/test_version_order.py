"""What the cluster tells of its changes explains what clients saw, so that no order has to be searched for."""

import pytest

from tests.sim.run import run


@pytest.mark.parametrize("seed", [225, 562, 10168, 14365])
def test_histories_that_no_search_can_judge_are_judged(seed: int) -> None:
    outcome = run(seed)
    assert not outcome.violations and not outcome.undecided
    assert outcome.searched == 0
