"""Which places of an epoch belong to which batch and rank, and how far a training has come. Pure: no I/O here.

All ranks together take `global_batch` places in each step, the next ones of the order. They divide them: each takes a
run of equal length, or of lengths that differ by one. So a training has come to one place of the order, which does not
depend on the number of ranks or workers, and goes on from there with any number of them.
"""

import operator
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from numbers import Integral
from typing import Any, Self

import numpy as np

from threefs.errors import InvalidArgument
from threefs_data.order import Numbers

_FORMAT = 1
_MAX = 1 << 63


@dataclass(frozen=True, slots=True)
class Position:
    """How far a training has come: the whole state of a loader."""

    seed: int = 0
    epoch: int = 0
    consumed: int = 0  # places of this epoch that all ranks together have taken
    fingerprint: str = ""  # of the dataset and the order
    sequences: int = 0  # of the window that begins at `consumed`, if samples are packed into sequences

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", whole("seed", self.seed))
        if not _is_count(self.seed):
            raise InvalidArgument(f"a seed of {self.seed} is not possible; give 0 to {_MAX - 1}")

    def state_dict(self) -> dict[str, Any]:
        return {"format": _FORMAT, **asdict(self)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], fingerprint: str) -> Self:
        """Raises InvalidArgument if the state is not one, or is that of another dataset or order."""
        if not isinstance(state, Mapping):
            raise InvalidArgument(f"{state!r} is not the state of a loader; give what `state_dict` has returned")
        names = ("seed", "epoch", "consumed", "sequences")
        if state.get("format") != _FORMAT or not all(_is_count(state.get(name)) for name in names):
            raise InvalidArgument(f"{dict(state)!r} is not the state of a loader of this version")
        if state.get("fingerprint") != fingerprint:
            raise InvalidArgument(
                f"the state is that of another dataset or order: it has the fingerprint {state.get('fingerprint')!r}, "
                f"and these have {fingerprint!r}; go on with the same dataset, order and weights"
            )
        return cls(fingerprint=fingerprint, **{name: int(state[name]) for name in names})


def _is_count(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and 0 <= int(value) < _MAX


def whole(name: str, value: object) -> int:
    """A whole number, also one of numpy, as one of Python: only such go through JSON. Raises InvalidArgument."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArgument(f"{name} is a whole number, not {value!r}") from None


@dataclass(frozen=True, slots=True)
class Schedule:
    """The batches of one rank. Every rank has the same number of them; parts of the last one may be empty."""

    samples: int
    global_batch: int
    rank: int = 0
    world: int = 1
    drop_last: bool = False  # leave out the last batch of an epoch if it is not full

    def __post_init__(self) -> None:
        for name in ("samples", "global_batch", "rank", "world"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))
        if self.world < 1 or not 0 <= self.rank < self.world:
            raise InvalidArgument(f"rank {self.rank} is not one of a world of {self.world}")
        if self.global_batch < 1:
            raise InvalidArgument(f"a batch of {self.global_batch} samples is not possible; give 1 or more")

    def remaining(self, consumed: int) -> int:
        """Batches from this place to the end of the epoch."""
        left = max(0, self.samples - consumed)
        return left // self.global_batch if self.drop_last else -(-left // self.global_batch)

    def after(self, position: Position, batches: int = 1) -> Position:
        """The position that many batches later; at the end of an epoch it is the beginning of the next."""
        while batches >= (left := self.remaining(position.consumed)):
            if not left and not self.remaining(0):
                raise InvalidArgument(f"{self.samples} samples are less than a batch of {self.global_batch}")
            batches -= left
            position = replace(position, epoch=position.epoch + 1, consumed=0)
        return replace(position, consumed=position.consumed + batches * self.global_batch)

    def places(self, consumed: int) -> Numbers:
        """Those of this rank in the batch that begins at this place."""
        size = min(self.global_batch, self.samples - consumed)
        first, end = size * self.rank // self.world, size * (self.rank + 1) // self.world
        return np.arange(consumed + first, consumed + end, dtype=np.int64)

    def batches(self, consumed: int = 0) -> Iterator[Numbers]:
        """The places of this rank in each batch to the end of the epoch."""
        for number in range(self.remaining(consumed)):
            yield self.places(consumed + number * self.global_batch)
