import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided
from threefs_checkpoint import regions
from threefs_checkpoint.regions import Region


@st.composite
def some_regions(draw: st.DrawFn) -> Region:
    stored = tuple(draw(st.lists(st.integers(1, 9), max_size=4)))
    first = tuple(draw(st.integers(0, length)) for length in stored)
    return Region(stored, first, tuple(draw(st.integers(0, end - at)) for at, end in zip(first, stored, strict=True)))


@given(some_regions(), st.sampled_from([1, 2, 4, 700, 3000]), st.integers(1, 5000))
def test_parts_and_their_rows_are_the_region(region: Region, item_bytes: int, limit_bytes: int) -> None:
    stored = np.arange(math.prod(region.stored)).reshape(region.stored)
    found = np.full(region.lengths, -1)
    for place, part in regions.parts(region, limit_bytes, item_bytes):
        assert part.numbers * item_bytes <= limit_bytes or part.numbers == 1
        rows = regions.rows(part, item_bytes)
        read = np.stack([stored.reshape(-1)[start : start + rows.span] for start in rows.starts])
        assert read.shape == (len(rows.starts), rows.span)
        assert read.size <= regions.MAX_AMPLIFICATION * part.numbers
        if rows.is_exact:
            assert read.size == part.numbers
        step = read.itemsize
        inner = as_strided(read, (len(read), *rows.inner), (rows.span * step, *(one * step for one in rows.strides)))
        inside = tuple(slice(at, at + length) for at, length in zip(place, part.lengths, strict=True))
        assert np.all(found[inside] == -1)
        found[inside] = inner.reshape(part.lengths)
    box = tuple(slice(at, at + length) for at, length in zip(region.first, region.lengths, strict=True))
    assert np.array_equal(found, stored[box])


def test_whole_rows_are_one_row() -> None:
    assert regions.rows(Region((10, 20, 30), (3, 0, 0), (4, 20, 30)), 4).starts == (1800,)
    assert regions.rows(Region((10, 20, 30), (3, 0, 0), (4, 20, 30)), 4).span == 2400


def test_short_rows_are_joined_unless_that_reads_too_much() -> None:
    half = regions.rows(Region((100, 64), (0, 32), (100, 32)), 4)
    assert half.starts == (32,) and half.span == 99 * 64 + 32 and not half.is_exact
    column = regions.rows(Region((100, 64), (0, 32), (100, 1)), 4)
    assert len(column.starts) == 100 and column.span == 1
    long = regions.rows(Region((100, 4096), (0, 2048), (100, 2048)), 4)
    assert len(long.starts) == 100 and long.is_exact


def test_a_part_has_a_bounded_number_of_rows() -> None:
    column = Region((1 << 18, 1 << 10), (0, 5), (1 << 18, 1))
    found = [part for _, part in regions.parts(column, 1 << 30, 4)]
    assert [part.lengths for part in found] == [(regions.MAX_ROWS, 1)] * 4
