"""Which bytes of a stored tensor have a part of it. Pure.

A tensor is stored in C order. A part is a box: its first index and its length in each dimension. Its bytes are read as
rows, each of which covers the innermost dimensions of the box.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

#: Rows that are shorter are joined by reading what lies between them, ...
SHORT_ROW_BYTES = 4096
#: ... unless that would read so many times more.
MAX_AMPLIFICATION = 8
#: Of one part: each costs some hundred bytes of memory.
MAX_ROWS = 1 << 16

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Region:
    """A box of a stored tensor."""

    stored: Shape
    first: Shape
    lengths: Shape

    def __post_init__(self) -> None:
        assert len(self.stored) == len(self.first) == len(self.lengths)
        assert all(
            0 <= at <= at + size <= whole for at, size, whole in zip(self.first, self.lengths, self.stored, strict=True)
        )

    @property
    def numbers(self) -> int:
        return math.prod(self.lengths)


@dataclass(frozen=True, slots=True)
class Rows:
    """The parts to read for a region, in numbers (not bytes) of the stored tensor."""

    starts: tuple[int, ...]  # the first number of each row
    span: int  # numbers from the first to the last of a row
    inner: Shape  # of the numbers of a row that belong to the region
    strides: Shape  # of `inner` in the row

    @property
    def is_exact(self) -> bool:
        """The rows have nothing else than the region."""
        return self.span == math.prod(self.inner)


def strides(shape: Sequence[int]) -> Shape:
    """Of a tensor in C order."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def rows(region: Region, item_bytes: int) -> Rows:
    """For a region that is not empty."""
    steps = strides(region.stored)
    axis = _axis_of_rows(region, item_bytes)
    inner = region.lengths[axis:]
    begin = sum(at * step for at, step in zip(region.first, steps, strict=True))
    starts = [begin]
    for length, step in zip(region.lengths[:axis], steps, strict=False):
        starts = [start + index * step for start in starts for index in range(length)]
    span = 1 + sum((length - 1) * step for length, step in zip(inner, steps[axis:], strict=True))
    return Rows(tuple(starts), span, inner, steps[axis:])


def _axis_of_rows(region: Region, item_bytes: int) -> int:
    """The first dimension that a row covers."""
    axis = _contiguous_from(region)
    if not axis or region.lengths[axis - 1] == 1:
        return axis
    row = math.prod(region.lengths[axis:]) * item_bytes
    step = strides(region.stored)[axis - 1] * item_bytes
    return axis - 1 if row < SHORT_ROW_BYTES and step <= MAX_AMPLIFICATION * row else axis


def _contiguous_from(region: Region) -> int:
    """The first dimension from which on the numbers of the region lie side by side."""
    axis = len(region.stored)
    while axis > 0:
        axis -= 1
        if region.lengths[axis] != region.stored[axis]:
            break
    return axis


def parts(region: Region, limit_bytes: int, item_bytes: int) -> Iterator[tuple[Shape, Region]]:
    """The region in parts, each with its place in the region. A part has at most `limit_bytes` and MAX_ROWS rows."""
    pending = [(tuple(0 for _ in region.stored), region)]
    while pending:
        place, part = pending.pop()
        many = math.prod(part.lengths[: _axis_of_rows(part, item_bytes)]) > MAX_ROWS
        if not many and (part.numbers * item_bytes <= limit_bytes or part.numbers <= 1):
            if part.numbers:
                yield place, part
            continue
        axis = next(axis for axis, length in enumerate(part.lengths) if length > 1)
        half = part.lengths[axis] // 2
        first, second = _with(part.lengths, axis, half), _with(part.lengths, axis, part.lengths[axis] - half)
        moved = _with(part.first, axis, part.first[axis] + half)
        pending.append((_with(place, axis, place[axis] + half), Region(part.stored, moved, second)))
        pending.append((place, Region(part.stored, part.first, first)))


def _with(shape: Shape, axis: int, value: int) -> Shape:
    return (*shape[:axis], value, *shape[axis + 1 :])
