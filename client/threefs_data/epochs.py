"""Which samples a rank reads in an epoch, and in which batches. Pure: no I/O here."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from threefs.errors import InvalidArgument
from threefs_data.permutation import Permutation


@dataclass(frozen=True, slots=True)
class Epoch:
    """One rank's part of one pass over all samples. The parts of all ranks together hold every sample once.

    The order depends on these values only, so every rank computes it without asking the others.
    """

    seed: int = 0
    epoch: int = 0
    rank: int = 0
    world: int = 1
    shuffle: bool = True

    def __post_init__(self) -> None:
        if self.world < 1 or not 0 <= self.rank < self.world:
            raise InvalidArgument(f"rank {self.rank} is not one of a world of {self.world}")

    def length(self, samples: int) -> int:
        """How many of `samples` this rank reads."""
        return max(0, -(-(samples - self.rank) // self.world))

    def batches(self, samples: int, batch_size: int, *, first: int = 0, step: int = 1) -> Iterator[list[int]]:
        """Numbers of the samples in each batch: batch `first` and every step-th after it."""
        if batch_size < 1:
            raise InvalidArgument(f"a batch of {batch_size} samples is not possible; give 1 or more")
        order = Permutation(samples, self.seed, self.epoch) if self.shuffle else None
        length = self.length(samples)
        for start in range(first * batch_size, length, step * batch_size):
            places = np.arange(start, min(start + batch_size, length)) * self.world + self.rank
            yield (places if order is None else order(places)).tolist()
