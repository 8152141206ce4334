"""The staging area of a save: copies of chunks in host memory, on their way to storage.

Training waits only while its tensors are copied here. If the area is full, it waits until storage has taken some of
them: the bytes never exceed the limit. Storage is written to when all is copied, or when the area is full, so that a
copy that fits is not slowed down by the writing.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from threefs.env.side_thread import new_condition
from threefs.errors import InvalidArgument


class StagedChunk(NamedTuple):
    number: int  # of the chunk in its file
    content: memoryview
    buffer: memoryview  # of the area, whose beginning it is


class StagingArea:
    """Buffers of one size. One thread fills it, another empties it."""

    def __init__(self, limit_bytes: int, chunk_bytes: int) -> None:
        """Raises InvalidArgument if the limit is less than two chunks."""
        if limit_bytes < 2 * chunk_bytes:
            raise InvalidArgument(
                f"a staging area of {limit_bytes} bytes is too small: it needs two chunks of {chunk_bytes} bytes"
            )
        self._chunk_bytes = chunk_bytes
        self._most = limit_bytes // chunk_bytes
        self._made = 0  # buffers; they stay for the next save
        self._free: list[memoryview] = []
        self._staged: deque[StagedChunk] = deque()
        self._changed = new_condition()
        self._open = False  # chunks may still come
        self._draining = False
        self._broken_off = False

    @property
    def peak_bytes(self) -> int:
        """The most memory that it has had."""
        return self._made * self._chunk_bytes

    def begin(self) -> None:
        """A save begins. The one before has ended."""
        assert not self._staged and len(self._free) == self._made, "the last save has given all buffers back"
        self._open, self._draining, self._broken_off = True, False, False

    def break_off(self) -> None:
        """Nothing that this save has staged is to be published."""
        self._broken_off = True

    def check(self) -> None:
        """Raises InvalidArgument if the save was broken off."""
        if self._broken_off:
            raise InvalidArgument("the save was broken off")

    def buffer(self) -> memoryview:
        """Memory for a chunk. Waits while the area is full."""
        with self._changed:
            if not self._free and self._made < self._most:
                made = np.empty(self._chunk_bytes, np.uint8).data
                self._made += 1  # when there was memory for it
                return made
            if not self._free:
                self._draining = True
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._free)
            return self._free.pop()

    def put(self, number: int, buffer: memoryview, length: int) -> None:
        with self._changed:
            self._staged.append(StagedChunk(number, buffer[:length], buffer))
            if self._draining:
                self._changed.notify_all()

    def end(self) -> None:
        """No chunk comes any more."""
        with self._changed:
            self._open = False
            self._changed.notify_all()

    def batches(self, batch_bytes: int) -> Iterator[list[StagedChunk]]:
        """The chunks in the order in which they were staged. A batch is free again when the next one is asked for.
        Raises InvalidArgument if the save was broken off."""
        while batch := self._next(batch_bytes):
            try:
                self.check()
                yield batch
            finally:
                self._give(batch)

    def discard(self) -> None:
        """Drop what is staged and what still comes."""
        while batch := self._next(self._chunk_bytes):
            self._give(batch)

    def _next(self, batch_bytes: int) -> list[StagedChunk]:
        with self._changed:
            self._changed.wait_for(lambda: not self._open or (self._draining and self._staged))
            count = min(len(self._staged), max(1, batch_bytes // self._chunk_bytes))
            return [self._staged.popleft() for _ in range(count)]

    def _give(self, batch: list[StagedChunk]) -> None:
        with self._changed:
            self._free += [chunk.buffer for chunk in batch]
            self._changed.notify_all()
