"""The batches of a rank, in order and read ahead, and how far the training has come."""

import hashlib
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from threefs.errors import InvalidArgument
from threefs_data.batch import Batch
from threefs_data.batch_prefetch import ReadAhead
from threefs_data.order import Order, Shuffled
from threefs_data.schedule import Position, Schedule
from threefs_data.source import Source


def fingerprint(source: Source, order: Order) -> str:
    """Of the samples and their order."""
    return hashlib.sha256(f"{source.fingerprint}\n{order.description}".encode()).hexdigest()[:32]


class Loader:
    """Iterate over it for an epoch, or for the rest of one:

    with Loader(Dataset(fs, "/data/tokens"), global_batch=1024, rank=3, world=8, workers=2) as loader:
        for batch in loader:
            train(batch.array("uint16"))
            state = loader.state_dict()

    All ranks together take `global_batch` samples in each step, and divide them evenly. The state counts the batches
    that the training has got, not those that are read ahead. It is the same on all ranks, and any number of ranks with
    any number of workers goes on from it. With `workers` = 0 a thread of this process reads. With the start method
    "spawn" the file system of the dataset must be one that can be pickled.

    Raises what reading raises, and Unavailable when a worker dies.
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
        workers: int = 0,
        depth: int = 0,
        start_method: str = "spawn",
    ) -> None:
        self.order = order or Shuffled(len(source))
        self.schedule = Schedule(self.order.samples, global_batch, rank, world, drop_last)
        if not self.schedule.remaining(0):
            raise InvalidArgument(f"{self.order.samples} samples do not make a batch; give another dataset or batch")
        self.position = Position(seed=seed, fingerprint=fingerprint(source, self.order))
        self._ahead = ReadAhead(source, workers=workers, depth=depth, start_method=start_method)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        """Batches to the end of the epoch."""
        return self.schedule.remaining(self.position.consumed)

    def __iter__(self) -> Iterator[Batch]:
        for batch, following in self._ahead.batches(self._plan(self.position)):
            self.position = following
            yield batch

    def close(self) -> None:
        """End the worker processes. Batches that were handed out stay valid."""
        self._ahead.close()

    def state_dict(self) -> dict[str, Any]:
        return self.position.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration goes on from there. Raises InvalidArgument for the state of another dataset or order."""
        self.position = Position.from_state(state, self.position.fingerprint)

    def _plan(self, position: Position) -> Iterator[tuple[list[int], Position]]:
        if not self.schedule.remaining(position.consumed):  # the epoch has ended for batches of this size
            position = self.schedule.after(position, 0)
        for places in self.schedule.batches(position.consumed):
            numbers = self.order.numbers(position.seed, position.epoch, places).tolist()
            position = self.schedule.after(position)
            yield numbers, position
