"""Collects ranges of files, and reads them in batches of a bounded size."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from threefs.errors import Corrupt
from threefs_checkpoint import slices
from threefs_checkpoint.slices import StoredSlice

#: Of one batch: each row takes some hundred bytes of memory.
_MAX_ROWS = 1 << 16


class BatchSource(Protocol):
    """`threefs_client.FileSystem` is one."""

    def read_batch(
        self, rows: Sequence[tuple[Any, int, int]], into: Sequence[memoryview] | None = None
    ) -> Sequence[memoryview]: ...


class BatchReader:
    """Ranges that are added are read, at the latest, by `flush`. Memory for those that do not go straight to their
    place is at most that of a batch."""

    def __init__(self, fs: BatchSource, batch_bytes: int) -> None:
        self.bytes_read = 0
        self._fs = fs
        self._batch_bytes = batch_bytes
        #: No portion of a slice takes more memory than a batch has, with what is read between its rows.
        self.portion_bytes = max(1, batch_bytes // slices.MAX_AMPLIFICATION)
        self._clear()

    def _clear(self) -> None:
        self._rows: list[tuple[Any, int, int]] = []
        self._into: list[memoryview] = []
        self._done: list[Callable[[], None]] = []
        self._size = 0

    def add(self, file: Any, ranges: Sequence[tuple[int, memoryview]], done: Callable[[], None] | None = None) -> None:
        """Fill each view from an offset of the file (a path or an open file) on; then call `done`."""
        for offset, view in ranges:
            if len(view):
                self._rows.append((file, offset, len(view)))
                self._into.append(view)
                self._size += len(view)
        if done is not None:
            self._done.append(done)
        if self._size >= self._batch_bytes or len(self._rows) >= _MAX_ROWS:
            self.flush()

    def then(self, done: Callable[[], None]) -> None:
        """Call `done` when everything that was added before has been read."""
        self._done.append(done)

    def add_slice(self, file: Any, offset: int, stored: StoredSlice, target: NDArray[Any]) -> None:
        """Fill an array with a slice of the tensor that begins at `offset`. Only the size of its numbers counts."""
        assert target.shape == stored.part.shape and stored.part.within(stored.shape)
        for place, portion in slices.portions(stored, self.portion_bytes, target.itemsize):
            inside: Any = tuple(slice(at, at + length) for at, length in zip(place, portion.part.shape, strict=True))
            self._add_portion(file, offset, portion, target[(*inside, ...)])

    def _add_portion(self, file: Any, offset: int, portion: StoredSlice, target: NDArray[Any]) -> None:
        rows = slices.rows(portion, target.itemsize)
        done: Callable[[], None] | None = None
        if rows.is_exact and target.flags.c_contiguous:
            buffer = target
        else:
            buffer = np.empty((len(rows.starts), rows.span), target.dtype)
            steps = (rows.span * target.itemsize, *(step * target.itemsize for step in rows.strides))
            found = as_strided(buffer, (len(rows.starts), *rows.inner), steps)

            def done() -> None:
                target[...] = found.reshape(target.shape)

        view = buffer.reshape(-1).view(np.uint8).data
        size = rows.span * target.itemsize
        self.add(
            file,
            [
                (offset + start * target.itemsize, view[number * size : (number + 1) * size])
                for number, start in enumerate(rows.starts)
            ],
            done,
        )

    def flush(self) -> None:
        """Read what was added. Raises NotFound, Corrupt and others."""
        rows, into, done = self._rows, self._into, self._done
        self._clear()
        views = self._fs.read_batch(rows, into=into) if rows else []
        for (file, offset, size), view in zip(rows, views, strict=True):
            if len(view) != size:
                raise Corrupt(
                    f"{getattr(file, 'name', file)} was cut short: it has {len(view)} of {size} bytes from {offset} on"
                )
        self.bytes_read += sum(size for _, _, size in rows)
        for work in done:
            work()
