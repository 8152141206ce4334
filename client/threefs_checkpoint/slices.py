"""Slices of a tensor: boxes of indexes. Arithmetic only.

Elements of a slice are numbered in row-major order, the last index fastest, as they lie in memory. A tensor in a file
is stored in the same order. A slice of it is read as rows, each of which covers the innermost dimensions of the slice.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from threefs.env.random import RANDOM

#: Rows that are shorter are joined by reading what lies between them, ...
SHORT_ROW_BYTES = 4096
#: ... unless that would read so many times more.
MAX_AMPLIFICATION = 8
#: Of one portion: each costs some hundred bytes of memory.
MAX_ROWS = 1 << 16

_PRIME = (1 << 61) - 1
_SECRET = RANDOM.token(16)

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


def make_up(parts: Iterable[Slice], shape: Shape) -> bool:
    """Whether the slices have each index of a tensor of this shape exactly once, in time for each of them alone.

    They have if their corners, with signs that alternate, are together those of the whole tensor: all others meet, and
    cancel out. The corners of a slice are a product over its dimensions. With a secret random number for each border
    of a dimension it is one number, and the sum is right by chance once in 2**55.
    """
    numbers: dict[tuple[int, int], int] = {}

    def number(dimension: int, border: int) -> int:
        found = numbers.get((dimension, border))
        if found is None:
            text = b"%d %d" % (dimension, border)
            found = int.from_bytes(hashlib.blake2b(text, key=_SECRET, digest_size=16).digest(), "little") % _PRIME
            numbers[dimension, border] = found
        return found

    def corners(part: Slice) -> int:
        product = 1
        for dimension, (begin, length) in enumerate(zip(part.offset, part.shape, strict=True)):
            product = product * (number(dimension, begin + length) - number(dimension, begin)) % _PRIME
        return product

    return sum(map(corners, parts)) % _PRIME == corners(whole(shape))


def overlapping(slices: Iterable[Slice]) -> tuple[Slice, Slice] | None:
    """Two that have an index in common, if there are any. Empty slices have none. Compares each with each."""
    parts = sorted({part for part in slices if part.size})
    return next((pair for pair in combinations(parts, 2) if intersection(*pair) is not None), None)


# ---- slices of a tensor in a file ----


class StoredSlice(NamedTuple):
    """A slice of a tensor that lies in a file."""

    shape: Shape  # of the tensor
    part: Slice


@dataclass(frozen=True, slots=True)
class Rows:
    """The parts of a file to read for a slice, in numbers (not bytes) of the stored tensor."""

    starts: tuple[int, ...]  # the first number of each row
    span: int  # numbers from the first to the last of a row
    inner: Shape  # of the numbers of a row that belong to the slice
    strides: Shape  # of `inner` in the row

    @property
    def is_exact(self) -> bool:
        """The rows have nothing else than the slice."""
        return self.span == math.prod(self.inner)


def strides(shape: Sequence[int]) -> Shape:
    """Of a tensor in C order."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def rows(stored: StoredSlice, item_bytes: int) -> Rows:
    """For a slice that is not empty."""
    steps = strides(stored.shape)
    axis = _axis_of_rows(stored, item_bytes)
    inner = stored.part.shape[axis:]
    begin = sum(at * step for at, step in zip(stored.part.offset, steps, strict=True))
    starts = [begin]
    for length, step in zip(stored.part.shape[:axis], steps, strict=False):
        starts = [start + index * step for start in starts for index in range(length)]
    span = 1 + sum((length - 1) * step for length, step in zip(inner, steps[axis:], strict=True))
    return Rows(tuple(starts), span, inner, steps[axis:])


def _axis_of_rows(stored: StoredSlice, item_bytes: int) -> int:
    """The first dimension that a row covers."""
    axis = _contiguous_from(stored)
    if not axis or stored.part.shape[axis - 1] == 1:
        return axis
    row = math.prod(stored.part.shape[axis:]) * item_bytes
    step = strides(stored.shape)[axis - 1] * item_bytes
    return axis - 1 if row < SHORT_ROW_BYTES and step <= MAX_AMPLIFICATION * row else axis


def _contiguous_from(stored: StoredSlice) -> int:
    """The first dimension from which on the numbers of the slice lie side by side."""
    axis = len(stored.shape)
    while axis > 0:
        axis -= 1
        if stored.part.shape[axis] != stored.shape[axis]:
            break
    return axis


def portions(stored: StoredSlice, limit_bytes: int, item_bytes: int) -> Iterator[tuple[Shape, StoredSlice]]:
    """The slice in portions, each with its place in the slice. One has at most `limit_bytes` and MAX_ROWS rows."""
    pending = [((0,) * len(stored.shape), stored.part)]
    while pending:
        place, part = pending.pop()
        portion = StoredSlice(stored.shape, part)
        many = math.prod(part.shape[: _axis_of_rows(portion, item_bytes)]) > MAX_ROWS
        if not many and (part.size * item_bytes <= limit_bytes or part.size <= 1):
            if part.size:
                yield place, portion
            continue
        axis = next(axis for axis, length in enumerate(part.shape) if length > 1)
        half = part.shape[axis] // 2
        first, second = _with(part.shape, axis, half), _with(part.shape, axis, part.shape[axis] - half)
        moved = _with(part.offset, axis, part.offset[axis] + half)
        pending.append((_with(place, axis, place[axis] + half), Slice(moved, second)))
        pending.append((place, Slice(part.offset, first)))


def _with(shape: Shape, axis: int, value: int) -> Shape:
    return (*shape[:axis], value, *shape[axis + 1 :])
