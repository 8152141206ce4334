from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from threefs_storage.scheduling.fair_queue import FairQueue

_QUANTUM = 100
_MAX = 1000
_WEIGHTS = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9), min_size=2)


@given(_WEIGHTS, st.data())
def test_kinds_that_always_wait_are_served_by_weight(weights: dict[str, int], data: st.DataObject) -> None:
    """The service of two kinds, each divided by its weight, never differs by more than a turn and a piece of each."""
    queue: FairQueue[str, tuple[str, int]] = FairQueue(weights, _QUANTUM)
    sizes = st.integers(1, _MAX)
    for kind in [*weights, *weights]:  # two of each: while one is served, the kind waits still
        size = data.draw(sizes)
        queue.push(kind, (kind, size), size)
    served = dict.fromkeys(weights, 0.0)
    for _ in range(data.draw(st.integers(0, 150))):
        popped = queue.pop()
        assert popped is not None
        kind, size = popped
        served[kind] += size / weights[kind]
        following = data.draw(sizes)
        queue.push(kind, (kind, following), following)
        bound = _QUANTUM + sum(sorted(_MAX / weight for weight in weights.values())[-2:])
        assert max(served.values()) - min(served.values()) <= bound


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, _MAX), st.booleans())))
def test_nothing_is_lost_and_each_kind_keeps_its_order(pushes: list[tuple[str, int, bool]]) -> None:
    queue: FairQueue[str, tuple[str, int]] = FairQueue({"a": 1, "b": 5}, _QUANTUM)
    kept = []
    for number, (kind, size, stays) in enumerate(pushes):
        item = (kind, number)
        queue.push(kind, item, size)
        if stays:
            kept.append(item)
        else:
            queue.withdraw(kind, item)
    assert len(queue) == len(kept)
    popped = [queue.pop() for _ in kept]
    assert sorted(popped) == sorted(kept) and queue.pop() is None  # type: ignore[type-var]
    for kind in "ab":
        numbers = [item[1] for item in popped if item is not None and item[0] == kind]
        assert all(one < other for one, other in pairwise(numbers))


def test_a_small_piece_does_not_wait_for_all_large_ones() -> None:
    queue: FairQueue[str, str] = FairQueue({"resync": 8, "scrub": 1}, _QUANTUM)
    for number in range(20):
        queue.push("resync", f"chunk {number}", 1000)
    queue.push("scrub", "record", 50)
    popped = [queue.pop() for _ in range(5)]
    assert "record" in popped
