import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_data.order import Shuffled
from threefs_data.schedule import Position, Schedule

from tests.harness import loader_histories
from threefs.errors import InvalidArgument


@given(st.integers(0, 300), st.integers(1, 40), st.integers(1, 9), st.integers(0, 320))
def test_ranks_divide_each_batch_evenly(samples: int, batch: int, world: int, consumed: int) -> None:
    ranks = [list(Schedule(samples, batch, rank, world).batches(consumed)) for rank in range(world)]
    assert len({len(batches) for batches in ranks}) == 1
    taken = []
    for parts in zip(*ranks, strict=True):
        sizes = [len(part) for part in parts]
        assert max(sizes) - min(sizes) <= 1
        taken.append([int(place) for part in parts for place in part])
    assert [place for places in taken for place in places] == list(range(consumed, samples))
    assert all(len(places) == batch for places in taken[:-1])


@given(st.integers(1, 300), st.integers(1, 40), st.integers(0, 60), st.booleans())
def test_steps_add_up(samples: int, batch: int, steps: int, drop_last: bool) -> None:
    schedule = Schedule(samples, min(batch, samples), drop_last=drop_last)
    one_by_one = Position()
    for _ in range(steps):
        one_by_one = schedule.after(one_by_one)
    assert schedule.after(Position(), steps) == one_by_one
    epochs, within = divmod(steps, schedule.remaining(0))
    assert (one_by_one.epoch, one_by_one.consumed) == (epochs, within * min(batch, samples))


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_over_random_histories() -> None:
    """The short form of `python -m tests.harness.loader_histories 10000`."""
    assert {loader_histories.run(seed) for seed in range(100)} == {(0, 0)}


def test_a_training_goes_on_at_once_however_long_the_epoch_is() -> None:
    schedule = Schedule(10**9, 1000, 3, 8)
    position = schedule.after(Position(), 999_999)
    numbers = Shuffled(10**9).numbers(1, position.epoch, schedule.places(position.consumed))
    assert len(numbers) == 125 and position.consumed == 999_999_000


def test_the_last_batch_may_be_left_out() -> None:
    assert [place.tolist() for place in Schedule(7, 3).batches()] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [place.tolist() for place in Schedule(7, 3, drop_last=True).batches()] == [[0, 1, 2], [3, 4, 5]]
    assert [place.tolist() for place in Schedule(7, 3, 0, 2).batches()] == [[0], [3], []]
    with pytest.raises(InvalidArgument, match="less than a batch"):
        Schedule(2, 3, drop_last=True).after(Position())


def test_a_position_comes_back_from_json() -> None:
    position = Position(7, 3, 1 << 40, "abc", 5)
    assert Position.from_state(json.loads(json.dumps(position.state_dict())), "abc") == position


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"fingerprint": "other"}, "another dataset or order"),
        ({"format": 2}, "not the state"),
        ({"consumed": -1}, "not the state"),
        ({"consumed": "1"}, "not the state"),
        ({"epoch": 1 << 63}, "not the state"),
        ({"seed": None}, "not the state"),
    ],
)
def test_other_states_are_refused(changed: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Position.from_state({**Position(fingerprint="abc").state_dict(), **changed}, "abc")


@pytest.mark.parametrize("state", [None, [], "state", b""])
def test_what_is_no_mapping_is_refused(state: Any) -> None:
    with pytest.raises(InvalidArgument, match="`state_dict`"):
        Position.from_state(state, "abc")


def test_impossible_values_are_refused() -> None:
    for rank, world in [(0, 0), (-1, 1), (1, 1)]:
        with pytest.raises(InvalidArgument, match="world"):
            Schedule(5, 1, rank, world)
    with pytest.raises(InvalidArgument, match="batch of 0"):
        Schedule(5, 0)


def test_numbers_of_numpy_go_through_json_and_come_back() -> None:
    """Sizes often come from a computation with numpy, and a state is kept in a checkpoint."""
    seed, batch, samples = np.int64(5), np.int64(30), np.int64(100)
    schedule = Schedule(samples, batch, np.int32(1), np.int32(2))  # type: ignore[arg-type]
    position = schedule.after(Position(seed, fingerprint="abc"), 5)  # type: ignore[arg-type]
    assert json.loads(json.dumps(position.state_dict())) == position.state_dict()
    assert position == Position(5, 1, 30, "abc")
    old = {**position.state_dict(), "consumed": np.int64(60), "seed": np.uint64(7)}
    assert json.loads(json.dumps(Position.from_state(old, "abc").state_dict()))["consumed"] == 60


@pytest.mark.parametrize("changed", [{"global_batch": 1.5}, {"samples": "3"}, {"rank": None}, {"world": 2.0}])
def test_numbers_that_are_not_whole_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=f"{next(iter(changed))} is a whole number, not"):
        Schedule(**{"samples": 10, "global_batch": 2, **changed})


@pytest.mark.parametrize(
    ("seed", "message"), [(1.5, "seed is a whole number"), (-1, "seed of -1"), (1 << 63, "seed of")]
)
def test_seeds_that_are_not_possible_are_refused(seed: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Position(seed)
