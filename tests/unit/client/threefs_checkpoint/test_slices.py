import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from threefs_checkpoint.slices import Slice, boxes, intersection, overlapping, whole

shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)


@st.composite
def parts_of(draw: st.DrawFn, shape: tuple[int, ...]) -> Slice:
    ranges = [sorted(draw(st.tuples(st.integers(0, length), st.integers(0, length)))) for length in shape]
    return Slice(tuple(begin for begin, _ in ranges), tuple(end - begin for begin, end in ranges))


def marked(shape: tuple[int, ...], part: Slice) -> set[int]:
    """The numbers of its elements."""
    numbers = np.arange(math.prod(shape)).reshape(shape)
    return set(numbers[part.relative_to(whole(shape))].reshape(-1).tolist())


@given(st.data(), shapes)
def test_the_intersection_has_the_elements_of_both(data: st.DataObject, shape: tuple[int, ...]) -> None:
    left, right = data.draw(parts_of(shape)), data.draw(parts_of(shape))
    both = intersection(left, right)
    expected = marked(shape, left) & marked(shape, right)
    assert (set() if both is None else marked(shape, both)) == expected


@given(st.data(), shapes)
def test_boxes_are_the_elements_in_their_order(data: st.DataObject, shape: tuple[int, ...]) -> None:
    begin, end = sorted(data.draw(st.tuples(*[st.integers(0, math.prod(shape))] * 2)))
    numbers = np.arange(math.prod(shape)).reshape(shape)
    found = list(boxes(shape, begin, end))
    order: list[int] = []
    for box, first in found:
        assert box.within(shape)
        held = numbers[box.relative_to(whole(shape))].reshape(-1).tolist()
        assert held[0] == first
        order += held
    assert order == list(range(begin, end))
    assert len(found) <= 2 * len(shape) + 1


@given(st.data(), shapes)
def test_an_overlap_is_found_exactly_if_there_is_one(data: st.DataObject, shape: tuple[int, ...]) -> None:
    parts = data.draw(st.lists(parts_of(shape), max_size=5, unique=True))
    clash = any(
        marked(shape, left) & marked(shape, right) for at, left in enumerate(parts) for right in parts[at + 1 :]
    )
    found = overlapping(parts)
    assert (found is not None) == clash
    if found is not None:
        assert marked(shape, found[0]) & marked(shape, found[1])


def test_within() -> None:
    assert Slice((1, 2), (3, 4)).within((4, 6)) and Slice((), ()).within(())
    for part in (Slice((1, 2), (3, 5)), Slice((-1, 0), (1, 1)), Slice((0,), (1,)), Slice((0, 0), (1, -1))):
        assert not part.within((4, 6))
