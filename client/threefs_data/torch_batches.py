"""Batches for PyTorch's DataLoader, in an order and with a state as those of `Loader`. Needs PyTorch.

DataLoader reads ahead, so only the training knows how many batches it got: it counts them and asks for the position.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from threefs_data.loader import fingerprint
from threefs_data.order import Order, Shuffled
from threefs_data.schedule import Position, Schedule
from threefs_data.source import Source, reopened

__all__ = ["BatchNumbers", "IterableBatches"]


class BatchNumbers:
    """The numbers of the samples of each batch to the end of the epoch: a `batch_sampler` for a map-style `Dataset`.

    DataLoader(dataset, batch_sampler=BatchNumbers(dataset, global_batch=256), collate_fn=..., num_workers=4)

    The position is in memory that worker processes share, so persistent workers begin each epoch where it is. They
    begin their first one where it was when they were started: one that comes late must not follow a training that has
    gone on. In later epochs one may still come late, so with persistent workers of `IterableBatches` call `advance`
    between two epochs only.
    """

    def __init__(
        self,
        source: Source,
        *,
        global_batch: int,
        order: Order | None = None,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        drop_last: bool = False,
    ) -> None:
        self.order = order or Shuffled(len(source))
        self.schedule = Schedule(self.order.samples, global_batch, rank, world, drop_last)
        self._fingerprint = fingerprint(source, self.order)
        self._own = Position(seed, fingerprint=self._fingerprint)
        self._shared = torch.tensor([self._own.seed, 0, 0], dtype=torch.int64).share_memory_()
        self._process = os.getpid()  # that has iterated, or made this

    @property
    def position(self) -> Position:
        seed, epoch, consumed = self._shared.tolist()
        return Position(seed, epoch, consumed, self._fingerprint)

    @position.setter
    def position(self, position: Position) -> None:
        self._shared[:] = torch.tensor([position.seed, position.epoch, position.consumed])
        self._own = position

    def __len__(self) -> int:
        return self.schedule.remaining(self.position.consumed)

    def __iter__(self) -> Iterator[list[int]]:
        is_new, self._process = self._process != os.getpid(), os.getpid()
        return self._from(self._own if is_new else self.position)

    def _from(self, position: Position) -> Iterator[list[int]]:
        for places in self.schedule.batches(position.consumed):
            numbers: list[int] = self.order.numbers(position.seed, position.epoch, places).tolist()
            yield numbers

    def advance(self, batches: int) -> None:
        """The training has got that many more batches, and the next iteration begins behind them."""
        self.position = self.schedule.after(self.position, batches)

    def state_dict(self, batches: int = 0) -> dict[str, Any]:
        """The state when the training has got that many more batches."""
        return self.schedule.after(self.position, batches).state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises InvalidArgument for the state of another dataset or order."""
        self.position = Position.from_state(state, self._fingerprint)


class IterableBatches(IterableDataset):  # type: ignore[misc]
    """The batches themselves, read by the workers of DataLoader, in order:

    DataLoader(IterableBatches(dataset, BatchNumbers(dataset, global_batch=256)), batch_size=None, num_workers=4)
    """

    def __init__(self, source: Source, numbers: BatchNumbers) -> None:
        self.numbers = numbers
        self._source = source

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[list[bytes]]:
        return self._read(iter(self.numbers))

    def _read(self, batches: Iterator[list[int]]) -> Iterator[list[bytes]]:
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        source = reopened(self._source)
        try:
            for index, numbers in enumerate(batches):
                if index % step == first:
                    location = source.locate(numbers)
                    samples = source.read_into(location, memoryview(bytearray(location.nbytes)))
                    yield [bytes(sample) for sample in samples]
        finally:
            source.close()
