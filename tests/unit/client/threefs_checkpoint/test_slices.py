import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided
from threefs_checkpoint import slices
from threefs_checkpoint.slices import Slice, StoredSlice, boxes, intersection, overlapping, whole

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


@given(st.data(), shapes)
def test_slices_make_up_a_tensor_exactly_if_each_index_is_there_once(
    data: st.DataObject, shape: tuple[int, ...]
) -> None:
    parts = [whole(shape)]
    for _ in range(data.draw(st.integers(0, 6))):  # cut some of them
        part = parts.pop(data.draw(st.integers(0, len(parts) - 1)))
        cuttable = [axis for axis, length in enumerate(part.shape) if length > 1]
        if not cuttable:
            parts.append(part)
            continue
        axis = data.draw(st.sampled_from(cuttable))
        at = data.draw(st.integers(1, part.shape[axis] - 1))
        offset, shape_of = list(part.offset), list(part.shape)
        shape_of[axis] = at
        parts.append(Slice(tuple(offset), tuple(shape_of)))
        offset[axis] += at
        shape_of[axis] = part.shape[axis] - at
        parts.append(Slice(tuple(offset), tuple(shape_of)))
    assert slices.make_up(parts, shape)
    parts += data.draw(st.lists(parts_of(shape), max_size=2))
    del parts[: data.draw(st.integers(0, 1))]
    counted = np.zeros(shape, int)
    for part in parts:
        counted[part.relative_to(whole(shape))] += 1
    assert slices.make_up(parts, shape) == bool((counted == 1).all())


def test_many_slices_in_no_grid_are_looked_at_once_each() -> None:
    """Whoever compares each with each needs an hour for them."""
    columns = [Slice((0, number), (2, 1)) for number in range(50_000)]
    parts = [*columns, Slice((0, 50_000), (1, 1)), Slice((1, 50_000), (1, 1))]
    assert slices.make_up(parts, (2, 50_001)) and not slices.make_up(parts[1:], (2, 50_001))


def test_within() -> None:
    assert Slice((1, 2), (3, 4)).within((4, 6)) and Slice((), ()).within(())
    for part in (Slice((1, 2), (3, 5)), Slice((-1, 0), (1, 1)), Slice((0,), (1,)), Slice((0, 0), (1, -1))):
        assert not part.within((4, 6))


@st.composite
def stored_slices(draw: st.DrawFn) -> StoredSlice:
    stored = tuple(draw(st.lists(st.integers(1, 9), max_size=4)))
    first = tuple(draw(st.integers(0, length)) for length in stored)
    lengths = tuple(draw(st.integers(0, end - at)) for at, end in zip(first, stored, strict=True))
    return StoredSlice(stored, Slice(first, lengths))


@given(stored_slices(), st.sampled_from([1, 2, 4, 700, 3000]), st.integers(1, 5000))
def test_portions_and_their_rows_are_the_slice(wanted: StoredSlice, item_bytes: int, limit_bytes: int) -> None:
    stored = np.arange(math.prod(wanted.shape)).reshape(wanted.shape)
    found = np.full(wanted.part.shape, -1)
    for place, portion in slices.portions(wanted, limit_bytes, item_bytes):
        assert portion.part.size * item_bytes <= limit_bytes or portion.part.size == 1
        rows = slices.rows(portion, item_bytes)
        read = np.stack([stored.reshape(-1)[start : start + rows.span] for start in rows.starts])
        assert read.shape == (len(rows.starts), rows.span)
        assert read.size <= slices.MAX_AMPLIFICATION * portion.part.size
        if rows.is_exact:
            assert read.size == portion.part.size
        step = read.itemsize
        inner = as_strided(read, (len(read), *rows.inner), (rows.span * step, *(one * step for one in rows.strides)))
        inside = tuple(slice(at, at + length) for at, length in zip(place, portion.part.shape, strict=True))
        assert np.all(found[inside] == -1)
        found[inside] = inner.reshape(portion.part.shape)
    box = tuple(slice(at, at + length) for at, length in zip(wanted.part.offset, wanted.part.shape, strict=True))
    assert np.array_equal(found, stored[box])


def test_whole_rows_are_one_row() -> None:
    assert slices.rows(StoredSlice((10, 20, 30), Slice((3, 0, 0), (4, 20, 30))), 4).starts == (1800,)
    assert slices.rows(StoredSlice((10, 20, 30), Slice((3, 0, 0), (4, 20, 30))), 4).span == 2400


def test_short_rows_are_joined_unless_that_reads_too_much() -> None:
    half = slices.rows(StoredSlice((100, 64), Slice((0, 32), (100, 32))), 4)
    assert half.starts == (32,) and half.span == 99 * 64 + 32 and not half.is_exact
    column = slices.rows(StoredSlice((100, 64), Slice((0, 32), (100, 1))), 4)
    assert len(column.starts) == 100 and column.span == 1
    long = slices.rows(StoredSlice((100, 4096), Slice((0, 2048), (100, 2048))), 4)
    assert len(long.starts) == 100 and long.is_exact


def test_a_portion_has_a_bounded_number_of_rows() -> None:
    column = StoredSlice((1 << 18, 1 << 10), Slice((0, 5), (1 << 18, 1)))
    found = [portion.part for _, portion in slices.portions(column, 1 << 30, 4)]
    assert [part.shape for part in found] == [(slices.MAX_ROWS, 1)] * 4
