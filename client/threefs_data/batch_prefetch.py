"""Reads batches ahead of a training, by worker processes or by a thread, and hands them out in order."""

import contextlib
import os
from collections import deque
from collections.abc import Generator, Iterable
from typing import Any, Protocol, TypeVar

import numpy as np

from threefs.env.executor import Future, thread_pool
from threefs.errors import InvalidArgument, ThreefsError
from threefs_data.batch import Batch
from threefs_data.batch_workers import BatchWorkers
from threefs_data.schedule import whole
from threefs_data.source import Source, reopened

T = TypeVar("T")


class _Readers(Protocol):
    is_broken: bool  # others are to be started

    def submit(self, numbers: list[int]) -> Any: ...

    def receive(self, ticket: Any) -> Batch: ...

    def discard(self, ticket: Any) -> None: ...

    def close(self) -> None: ...


class ReadAhead:
    """Reads `depth` batches while the training works on another one; 0 stands for 2 batches per process.

    Without workers a thread of this process reads. Processes and thread live until `close`. A forked child has none of
    its parent's: it starts others when it iterates.
    """

    def __init__(self, source: Source, *, workers: int, depth: int, start_method: str) -> None:
        workers, depth = whole("workers", workers), whole("depth", depth)
        if workers < 0 or depth < 0:
            raise InvalidArgument(
                f"{workers} workers and a depth of {depth} batches are not possible; give 0 (a thread of this process, "
                "2 batches for each worker) or more"
            )
        self._source = source
        self._workers = workers
        self._depth = depth or 2 * max(1, workers)
        self._start_method = start_method
        self._readers: _Readers | None = None
        self._process = os.getpid()  # which has started them

    def batches(self, plan: Iterable[tuple[list[int], T]]) -> Generator[tuple[Batch, T], None, None]:
        """A batch of each list of numbers, with what stands beside it."""
        readers = self._readers = self._of_this_process() or self._start()
        waiting: deque[tuple[Any, T]] = deque()
        try:
            for numbers, beside in plan:
                self._check(readers)
                waiting.append((readers.submit(numbers), beside))
                if len(waiting) > self._depth:
                    yield self._next(readers, waiting)
            while waiting:
                yield self._next(readers, waiting)
        finally:
            if self._of_this_process() is readers:
                # The last ones first, as workers need not begin what nobody will take.
                self._discard(readers, [ticket for ticket, _ in reversed(waiting)])

    def _discard(self, readers: _Readers, tickets: list[Any]) -> None:
        for ticket in tickets:
            if not readers.is_broken:
                with contextlib.suppress(ThreefsError):  # the error of another batch is under way
                    readers.discard(ticket)
        if readers.is_broken:
            self.close()

    def close(self) -> None:
        readers, self._readers = self._of_this_process(), None
        if readers is not None:
            readers.close()

    def _of_this_process(self) -> _Readers | None:
        return self._readers if self._process == os.getpid() else None

    def _start(self) -> _Readers:
        self._process = os.getpid()
        if self._workers:
            return BatchWorkers(self._source, self._workers, self._start_method)
        return _ThreadReader(self._source)

    def _check(self, readers: _Readers) -> None:
        if self._of_this_process() is not readers:
            raise InvalidArgument(
                "the loader was closed while batches were taken from it, or they are taken by a forked child; iterate "
                "anew"
            )

    def _next(self, readers: _Readers, waiting: deque[tuple[Any, T]]) -> tuple[Batch, T]:
        self._check(readers)
        ticket, beside = waiting.popleft()
        return readers.receive(ticket), beside


class _ThreadReader:
    is_broken = False

    def __init__(self, source: Source) -> None:
        self._source = reopened(source)  # no other thread uses this one
        self._thread = thread_pool("threefs-loader", 1)

    def submit(self, numbers: list[int]) -> "Future[Batch]":
        return self._thread.submit(self._read, numbers)

    def receive(self, ticket: "Future[Batch]") -> Batch:
        return ticket.result()

    def discard(self, ticket: "Future[Batch]") -> None:
        ticket.cancel()

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        self._source.close()

    def _read(self, numbers: list[int]) -> Batch:
        location = self._source.locate(numbers)
        memory = np.empty(location.nbytes, np.uint8)
        self._source.read_into(location, memory.data)
        return Batch(location.numbers, memory, location.offsets, location.lengths)
