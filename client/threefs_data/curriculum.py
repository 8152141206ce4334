"""Short samples before long ones: an order in stages by length."""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from threefs.errors import InvalidArgument
from threefs_data.order import Numbers
from threefs_data.permutation import Permutation, derived_seed


@dataclass(frozen=True, slots=True, init=False)
class Curriculum:
    """Stage i has the samples that are shorter than edge i, and not in an earlier stage; the last has the rest. An
    epoch goes through the stages in order; within a stage samples are shuffled.

    Keeps 8 bytes for each sample.
    """

    edges: tuple[int, ...]
    _by_stage: NDArray[np.int64]
    _ends: NDArray[np.int64]
    _digest: str  # of the stages: they follow from lengths, of which there are several kinds (bytes, tokens)

    def __init__(self, lengths: NDArray[np.integer], edges: tuple[int, ...]) -> None:
        if not edges or list(edges) != sorted(set(edges)):
            raise InvalidArgument(f"edges {edges} do not rise; give the first length of each stage but the first")
        stages = np.searchsorted(np.array(edges), lengths, side="right")
        object.__setattr__(self, "edges", tuple(edges))
        by_stage = np.argsort(stages, kind="stable").astype("<i8", copy=False)
        object.__setattr__(self, "_by_stage", by_stage)
        object.__setattr__(self, "_ends", np.cumsum(np.bincount(stages, minlength=len(edges) + 1)))
        object.__setattr__(self, "_digest", hashlib.sha256(by_stage.data).hexdigest()[:16])

    @property
    def samples(self) -> int:
        return len(self._by_stage)

    @property
    def description(self) -> str:
        return f"curriculum {self.edges} {self._ends.tolist()} {self._digest}"

    def numbers(self, seed: int, epoch: int, places: Numbers) -> Numbers:
        stages = np.searchsorted(self._ends, places, side="right")
        shuffled = places.astype(np.int64)
        for stage in np.unique(stages).tolist():
            first = int(self._ends[stage - 1]) if stage else 0
            at = stages == stage
            order = Permutation(int(self._ends[stage]) - first, derived_seed(seed, stage), epoch)
            shuffled[at] = first + order(places[at] - first).astype(np.int64)
        return self._by_stage[shuffled]
