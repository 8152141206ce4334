"""Slices of a tensor: boxes of indexes. Arithmetic only.

Elements of a slice are numbered in row-major order, the last index fastest, as they lie in memory.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

Shape = tuple[int, ...]


class Slice(NamedTuple):
    """The indexes from `offset` up to `offset + shape`, in each dimension."""

    offset: Shape
    shape: Shape

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def end(self) -> Shape:
        return tuple(begin + length for begin, length in zip(self.offset, self.shape, strict=True))

    def within(self, shape: Shape) -> bool:
        """Whether it lies inside a tensor of this shape."""
        return (
            len(self.offset) == len(self.shape) == len(shape)
            and min((*self.offset, *self.shape), default=0) >= 0
            and all(end <= most for end, most in zip(self.end, shape, strict=True))
        )

    def relative_to(self, outer: "Slice") -> tuple[slice, ...]:
        """For indexing an array that holds `outer`."""
        return tuple(
            slice(begin - start, begin - start + length)
            for begin, length, start in zip(self.offset, self.shape, outer.offset, strict=True)
        )


def whole(shape: Sequence[int]) -> Slice:
    return Slice((0,) * len(shape), tuple(shape))


def intersection(left: Slice, right: Slice) -> Slice | None:
    """The indexes in both; None if there are none."""
    offset = tuple(map(max, left.offset, right.offset))
    shape = tuple(min(ends) - begin for *ends, begin in zip(left.end, right.end, offset, strict=True))
    if any(length <= 0 for length in shape):
        return None
    return Slice(offset, shape)


def boxes(shape: Shape, begin: int, end: int) -> Iterator[tuple[Slice, int]]:
    """The elements number `begin` up to `end` of an array of this shape, as few boxes in order, each with the number of
    its first element. There are at most two for each dimension, and one more."""
    if begin >= end:
        return
    if not shape:
        yield Slice((), ()), 0
        return
    row = math.prod(shape[1:])
    first, last = begin // row, (end - 1) // row
    if first == last and (begin % row or end % row):
        for box, number in boxes(shape[1:], begin - first * row, end - first * row):
            yield _below(first, box), first * row + number
        return
    if begin % row:
        yield from boxes(shape, begin, (first + 1) * row)
        first += 1
    stop = end // row
    if stop > first:
        yield Slice((first, *(0,) * (len(shape) - 1)), (stop - first, *shape[1:])), first * row
    if end % row:
        yield from boxes(shape, stop * row, end)


def _below(index: int, box: Slice) -> Slice:
    return Slice((index, *box.offset), (1, *box.shape))


def overlapping(slices: Iterable[Slice]) -> tuple[Slice, Slice] | None:
    """Two that have an index in common, if there are any. Empty slices have none."""
    parts = sorted({part for part in slices if part.size}, key=lambda part: part.offset)
    if len(parts) < 2 or _are_cells(parts):
        return None
    active: list[Slice] = []
    for part in parts:
        active = [other for other in active if not other.offset or other.end[0] > part.offset[0]]
        for other in active:
            if intersection(part, other) is not None:
                return other, part
        active.append(part)
    return None


def _are_cells(parts: Sequence[Slice]) -> bool:
    """Whether each is one cell of the grid that the borders of all of them make. Then different ones are disjoint."""
    for dimension in range(len(parts[0].shape)):
        borders = {part.offset[dimension] for part in parts} | {part.end[dimension] for part in parts}
        following = dict(zip(ordered := sorted(borders), ordered[1:], strict=False))
        if any(following[part.offset[dimension]] != part.end[dimension] for part in parts):
            return False
    return len({part.offset for part in parts}) == len(parts)
