"""The batches of a rank as sequences that are packed from samples of different lengths."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from threefs.errors import InvalidArgument
from threefs_data.batch import Batch
from threefs_data.batch_prefetch import ReadAhead
from threefs_data.loader import fingerprint
from threefs_data.order import Numbers, Order, Shuffled
from threefs_data.packing import PackedSchedule, Packing, Piece
from threefs_data.schedule import Position, whole
from threefs_data.source import Source, reopened


@dataclass(frozen=True, slots=True)
class PackedBatch:
    batch: Batch
    sequences: list[list[Piece]]
    capacity: int

    def arrays(self, dtype: DTypeLike, padding: int = 0) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """Tokens, and segments: in each sequence, the tokens of its first sample have segment 1, and so on; padding has
        segment 0. Both have a row per sequence."""
        shape = (len(self.sequences), self.capacity)
        tokens, segments = np.full(shape, padding, dtype), np.zeros(shape, np.int32)
        samples = dict(zip(self.batch.numbers.tolist(), self.batch.samples, strict=True))
        for row, sequence in enumerate(self.sequences):
            at = 0
            for segment, piece in enumerate(sequence, 1):
                sample = np.frombuffer(samples[piece.number], dtype)
                tokens[row, at : at + piece.length] = sample[piece.start : piece.start + piece.length]
                segments[row, at : at + piece.length] = segment
                at += piece.length
        return tokens, segments


class PackedLoader:
    """As `Loader`, but a batch has sequences instead of samples, and `global_batch` counts them. A token has
    `token_bytes` bytes. Which samples share a sequence depends on the order and on lengths alone."""

    def __init__(
        self,
        source: Source,
        packing: Packing,
        *,
        token_bytes: int,
        global_batch: int,
        order: Order | None = None,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        drop_last: bool = False,
        workers: int = 0,
        depth: int = 0,
        start_method: str = "spawn",
    ) -> None:
        self.order = order or Shuffled(len(source))
        if not self.order.samples:
            raise InvalidArgument("0 samples do not make a sequence; give another dataset")
        self.packing = packing
        self._lengths = reopened(source)  # no other thread or process uses this one
        self._token_bytes = whole("token_bytes", token_bytes)
        if self._token_bytes < 1:
            raise InvalidArgument(f"tokens of {token_bytes} bytes are not possible; give 1 or more")
        self._schedule = PackedSchedule(self.order, packing, self._lengths_of, global_batch, rank, world, drop_last)
        packed = f"{fingerprint(source, self.order)} {packing.description} {token_bytes}"
        self.position = Position(seed=seed, fingerprint=packed)
        self._ahead = ReadAhead(source, workers=workers, depth=depth, start_method=start_method)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[PackedBatch]:
        position = self.position
        for batch, (sequences, following) in self._ahead.batches(self._plan(position)):
            self.position = following
            yield PackedBatch(batch, sequences, self.packing.capacity)
        self.position = replace(position, epoch=position.epoch + 1, consumed=0, sequences=0)

    def close(self) -> None:
        """End the worker processes. Batches that were handed out stay valid."""
        self._ahead.close()
        self._lengths.close()

    def state_dict(self) -> dict[str, Any]:
        return self.position.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration goes on from there. Raises InvalidArgument for the state of another dataset or order."""
        self.position = Position.from_state(state, self.position.fingerprint)

    def _plan(self, position: Position) -> Iterator[tuple[list[int], tuple[list[list[Piece]], Position]]]:
        for sequences, following in self._schedule.batches(position):
            numbers = dict.fromkeys(piece.number for sequence in sequences for piece in sequence)
            yield list(numbers), (sequences, following)

    def _lengths_of(self, numbers: Numbers) -> list[int]:
        lengths = self._lengths.locate(numbers.tolist()).lengths
        if (lengths % self._token_bytes).any():
            odd = numbers[int((lengths % self._token_bytes).argmax())]
            raise InvalidArgument(f"sample {odd} does not consist of whole tokens of {self._token_bytes} bytes")
        return [int(length) for length in lengths // self._token_bytes]
