"""A weighted mixture of datasets: a pure function of seed, epoch and place, as any order.

Places are counted on through all epochs, and divided into blocks. In each block every dataset has the same share of
places, by its weight, and a permutation says which ones. So the number of places that a dataset had in all earlier
blocks is a product, and the sample at a place is found without going through the places before it. A dataset goes
through its samples in passes: each sample once, shuffled, before the next pass begins.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from threefs.errors import InvalidArgument
from threefs_data.order import Numbers
from threefs_data.permutation import Permutation, derived_seed, in_epochs
from threefs_data.schedule import whole

#: Places in a block. A share is exact to a part in this number.
BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class Mixture:
    """Of datasets with these numbers of samples and weights. The samples of dataset i begin at `sum(lengths[:i])`.

    `samples` are the places of an epoch.
    """

    lengths: tuple[int, ...]
    weights: tuple[float, ...]
    samples: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", tuple(whole("the length of a dataset", each) for each in self.lengths))
        object.__setattr__(self, "weights", tuple(self.weights))
        object.__setattr__(self, "samples", whole("samples", self.samples))
        if len(self.lengths) != len(self.weights) or not self.lengths:
            raise InvalidArgument(
                f"{len(self.lengths)} datasets and {len(self.weights)} weights: give one for each, at least one"
            )
        if min(self.lengths) < 1:
            raise InvalidArgument("a dataset without samples cannot be part of a mixture; leave it out")
        if self.samples < 1:
            raise InvalidArgument(f"an epoch of {self.samples} samples is not possible; give 1 or more")
        shares(self.weights)

    @property
    def description(self) -> str:
        return f"mixture {self.lengths} {shares(self.weights)} {self.samples}"

    def numbers(self, seed: int, epoch: int, places: Numbers) -> Numbers:
        own = shares(self.weights)
        ends = np.cumsum(own)
        blocks, within = np.divmod(epoch * self.samples + places, BLOCK)
        for block in np.unique(blocks).tolist():
            at = blocks == block
            within[at] = Permutation(BLOCK, derived_seed(seed, 0), block)(within[at])
        sources = np.searchsorted(ends, within, side="right")
        numbers = np.empty(len(places), np.int64)
        first = 0
        for source, (share, length) in enumerate(zip(own, self.lengths, strict=True)):
            at = np.flatnonzero(sources == source)
            draws = blocks[at] * share + within[at] - (int(ends[source]) - share)
            passes, drawn = np.divmod(draws, length)
            numbers[at] = first + in_epochs(length, derived_seed(seed, source + 1), passes, drawn).astype(np.int64)
            first += length
        return numbers


def shares(weights: Sequence[float]) -> list[int]:
    """The places of each in a block. Raises InvalidArgument."""
    total = sum(weights)
    if not 0 < total < float("inf") or min(weights) <= 0:
        raise InvalidArgument(f"weights {tuple(weights)} are not possible; give positive numbers")
    bounds = [0, *(round(BLOCK * part / total) for part in accumulate(weights))]
    found = np.diff(bounds).tolist()
    if min(found) < 1:
        raise InvalidArgument(
            f"the weight {min(weights)} of {total} is too small; give at least a part in {BLOCK // 2}"
        )
    return [int(share) for share in found]
