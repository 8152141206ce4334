"""The order of samples in an epoch: a pure function of seed, epoch and place. Nothing about it has to be stored.

An order has `samples` places in each epoch. Its description names everything else that it depends on, so that a
position in one order is not taken for a position in another.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from threefs_data.permutation import Permutation

Numbers = NDArray[np.int64]


class Order(Protocol):
    @property
    def samples(self) -> int:
        """Places in an epoch."""
        ...

    @property
    def description(self) -> str: ...

    def numbers(self, seed: int, epoch: int, places: Numbers) -> Numbers:
        """The samples at these places, each from 0 to samples - 1."""
        ...


@dataclass(frozen=True, slots=True)
class Shuffled:
    """Each sample once per epoch, in another random order in each."""

    samples: int

    @property
    def description(self) -> str:
        return f"shuffled {self.samples}"

    def numbers(self, seed: int, epoch: int, places: Numbers) -> Numbers:
        return Permutation(self.samples, seed, epoch)(places).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Sequential:
    """Each sample once per epoch, in the order of the dataset."""

    samples: int

    @property
    def description(self) -> str:
        return f"sequential {self.samples}"

    def numbers(self, seed: int, epoch: int, places: Numbers) -> Numbers:
        return places.astype(np.int64)
