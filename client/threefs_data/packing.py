"""Samples of different lengths packed into sequences of one capacity: a function of the order and of the lengths.

The places of an epoch are divided into windows, and the samples of each window are packed by themselves. So a training
goes on from the beginning of a window and a number of its sequences, and packs one window again. Lengths are in tokens.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from threefs.errors import InvalidArgument
from threefs_data.order import Numbers, Order
from threefs_data.permutation import Permutation, derived_seed
from threefs_data.schedule import Position, whole

#: Tells the shuffle of sequences from other uses of the seed.
_PURPOSE = 1 << 32


@dataclass(frozen=True, slots=True)
class Piece:
    """A sample in a sequence, or a part of one that is longer than a sequence."""

    number: int  # of the sample
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class Packing:
    """How samples become sequences of at most `capacity` tokens. A larger window leaves fewer tokens of them empty."""

    capacity: int
    window: int = 1024

    def __post_init__(self) -> None:
        for name in ("capacity", "window"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))
        if self.capacity < 1 or self.window < 1:
            raise InvalidArgument(
                f"a capacity of {self.capacity} tokens and a window of {self.window} samples are not possible; "
                "give 1 or more"
            )

    @property
    def description(self) -> str:
        return f"packed {self.capacity} {self.window}"

    def sequences(self, numbers: Sequence[int], lengths: Sequence[int]) -> list[list[Piece]]:
        """Each piece goes where it leaves the least room, longest first. Samples without tokens are left out."""
        pieces = [
            Piece(number, start, min(self.capacity, length - start))
            for number, length in zip(numbers, lengths, strict=True)
            for start in range(0, length, self.capacity)
        ]
        packed: list[list[Piece]] = []
        rooms: list[tuple[int, int]] = []  # (room, index of the sequence), rising
        for piece in sorted(pieces, key=lambda piece: -piece.length):
            at = bisect_left(rooms, (piece.length, 0))
            if at == len(rooms):
                room, index = self.capacity, len(packed)
                packed.append([])
            else:
                room, index = rooms.pop(at)
            packed[index].append(piece)
            if room > piece.length:
                insort(rooms, (room - piece.length, index))
        return packed


@dataclass(frozen=True, slots=True)
class PackedSchedule:
    """The batches of one rank. All ranks together take `global_batch` sequences in each step, the next ones."""

    order: Order
    packing: Packing
    lengths_of: Callable[[Numbers], Sequence[int]]  # of samples, by their numbers
    global_batch: int
    rank: int = 0
    world: int = 1
    drop_last: bool = False

    def __post_init__(self) -> None:
        for name in ("global_batch", "rank", "world"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))
        if self.world < 1 or not 0 <= self.rank < self.world:
            raise InvalidArgument(f"rank {self.rank} is not one of a world of {self.world}")
        if self.global_batch < 1:
            raise InvalidArgument(f"a batch of {self.global_batch} sequences is not possible; give 1 or more")

    def batches(self, position: Position) -> Iterator[tuple[list[list[Piece]], Position]]:
        """The sequences of this rank in each batch to the end of the epoch, and the position behind it."""
        waiting: list[list[Piece]] = []
        ended = replace(position, epoch=position.epoch + 1, consumed=0, sequences=0)
        for first in range(position.consumed, self.order.samples, self.packing.window):
            window = self._window(position.seed, position.epoch, first)
            skipped = position.sequences if first == position.consumed else 0
            for number, sequence in enumerate(window[skipped:], skipped + 1):
                waiting.append(sequence)
                if len(waiting) == self.global_batch:
                    yield self._part(waiting), replace(position, consumed=first, sequences=number)
                    waiting = []
        if waiting and not self.drop_last:
            yield self._part(waiting), ended

    def _part(self, sequences: list[list[Piece]]) -> list[list[Piece]]:
        count = len(sequences)
        return sequences[count * self.rank // self.world : count * (self.rank + 1) // self.world]

    def _window(self, seed: int, epoch: int, first: int) -> list[list[Piece]]:
        places = np.arange(first, min(first + self.packing.window, self.order.samples))
        numbers = self.order.numbers(seed, epoch, places)
        sequences = self.packing.sequences(numbers.tolist(), self.lengths_of(numbers))
        shuffle = Permutation(len(sequences), derived_seed(seed, _PURPOSE + first), epoch)
        return [sequences[index] for index in shuffle(np.arange(len(sequences))).tolist()]
