"""Worker processes that read batches ahead, into memory that they share with the loader.

Batch i is read by worker i mod workers, and taken in order. Only short messages go through pipes: a batch, its numbers
and where its samples lie are in a slot. A slot is used again when the training has dropped the last view of its batch,
so a training may keep batches for as long as it likes; a further slot is made then, which costs both processes a
descriptor.
"""

import contextlib
import mmap
import multiprocessing
import os
import signal
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import reduction
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from threefs.env.executor import SPAWN_HINT, Future, interrupts_held, thread_pool
from threefs.errors import Internal, ThreefsError, Unavailable, error_of
from threefs_data import batch_slots
from threefs_data.batch import Batch
from threefs_data.batch_slots import Slot
from threefs_data.location import Location
from threefs_data.source import Source

_TASK = struct.Struct("<IQQ?")  # slot, its size, samples, whether its descriptor follows
_REPLY = struct.Struct("<BIQ")  # kind, slot, what the kind says
_DONE, _TOO_SMALL, _ERROR = 1, 2, 3  # -, bytes that are needed, code of the error (its text follows)
_AT_ONCE = 2  # batches that a worker reads at a time
_MAX_ERROR_BYTES = 4096
_MAX_UNANSWERED = 16  # batches that a worker has: all their replies fit into the pipe while nobody reads it (208 KiB)


_Opener = tuple[Callable[..., Source], tuple[Any, ...]]


class _Context(Protocol):
    def Pipe(self, duplex: bool = True) -> tuple[Connection, Connection]: ...  # noqa: N802

    def Process(self, *, target: object, args: object, daemon: bool) -> BaseProcess: ...  # noqa: N802


@dataclass(slots=True)
class _Worker:
    pipe: Connection
    process: BaseProcess
    free: list[Slot] = field(default_factory=list)
    waiting: "deque[Ticket]" = field(default_factory=deque)  # for the worker to have answered others
    unanswered: "dict[int, Ticket]" = field(default_factory=dict)  # by the number of the slot
    has_answered: bool = False


@dataclass(slots=True)
class Ticket:
    """A batch that is being read, or will be."""

    worker: _Worker
    numbers: NDArray[np.int64]
    slot: Slot | None = None  # once the worker has it
    reply: bytes | None = None
    is_dropped: bool = False  # nobody waits for it any more


class BatchWorkers:
    def __init__(self, source: Source, workers: int, start_method: str) -> None:
        context: _Context = multiprocessing.get_context(start_method)  # type: ignore[assignment]
        self._source = source
        self._workers: list[_Worker] = []
        self._submitted = 0
        self._slots = 0
        #: A message was broken off in its midst, or a worker has died: nothing can be asked of them any more.
        self.is_broken = False
        pipes: list[Connection] = []
        for _ in range(workers):
            own, other = context.Pipe()
            pipes.append(own)
            # A forked worker inherits our ends of the pipes, which would keep the others waiting if we are killed.
            inherited = list(pipes) if start_method == "fork" else []
            process = context.Process(target=_work, args=(source.__reduce__(), other, inherited), daemon=True)
            with interrupts_held(start_method):
                process.start()
            other.close()
            self._workers.append(_Worker(own, process))

    def submit(self, numbers: Sequence[int]) -> Ticket:
        """Begin to read these samples. Raises Unavailable as `receive` does."""
        worker = self._workers[self._submitted % len(self._workers)]
        self._submitted += 1
        ticket = Ticket(worker, np.array(numbers, np.int64))
        worker.waiting.append(ticket)
        self._exchange(worker)
        return ticket

    def receive(self, ticket: Ticket) -> Batch:
        """Raises what reading raised, and Unavailable if the worker has died or the operating system refuses memory."""
        free = ticket.worker.free
        while True:
            slot, reply = self._answer(ticket)
            kind, _, value = _REPLY.unpack_from(reply)
            if kind == _DONE:
                break
            if kind == _ERROR:
                free.append(slot)
                raise error_of(value, reply[_REPLY.size :].decode(errors="replace"))
            with self._whole_message(ticket.worker):
                self._send(ticket, Slot(slot.number, value + value // 4))  # most batches after it fit
        lent = slot.lend(lambda: free.append(slot))
        numbers, starts, lengths = batch_slots.columns(lent, len(ticket.numbers))
        return Batch(numbers, lent, starts, lengths)

    def discard(self, ticket: Ticket) -> None:
        """Wait until nothing is written to its slot any more. Raises Unavailable if the worker has died."""
        if ticket.slot is None:
            ticket.is_dropped = True
        else:
            ticket.worker.free.append(self._answer(ticket)[0])

    def close(self) -> None:
        for worker in self._workers:
            worker.pipe.close()  # a worker that waits for work ends
        for worker in self._workers:
            worker.process.terminate()
            worker.process.join()

    def _answer(self, ticket: Ticket) -> tuple[Slot, bytes]:
        """Wait for the reply. If Ctrl-C comes instead, the slot is free when the reply has come."""
        worker = ticket.worker
        try:
            while ticket.reply is None:
                worker.pipe.poll(None)  # Ctrl-C may come while nothing does
                self._exchange(worker)
        except BaseException:
            ticket.is_dropped = True
            raise
        assert ticket.slot is not None, "it was answered"
        return ticket.slot, ticket.reply

    def _exchange(self, worker: _Worker) -> None:
        """Take the replies that are there, and send batches. More of both than a pipe holds at a time would end in both
        processes waiting for the other one to listen."""
        while worker.pipe.poll():
            with self._whole_message(worker):
                reply = worker.pipe.recv_bytes()
                ticket = worker.unanswered.pop(_REPLY.unpack_from(reply)[1])
                ticket.reply = reply
                worker.has_answered = True
                if ticket.is_dropped and ticket.slot is not None:
                    worker.free.append(ticket.slot)
        while worker.waiting and len(worker.unanswered) < _MAX_UNANSWERED:
            with self._whole_message(worker):
                ticket = worker.waiting.popleft()
                if not ticket.is_dropped:
                    self._send(ticket, self._free_slot(worker, len(ticket.numbers)))

    def _free_slot(self, worker: _Worker, samples: int) -> Slot:
        size = batch_slots.head_bytes(samples) + self._source.batch_bytes(samples)
        if not worker.free:
            self._slots += 1
            return Slot(self._slots, size)
        slot = worker.free.pop()
        return slot if slot.size_bytes >= size else Slot(slot.number, size)  # the worker drops the other one

    def _send(self, ticket: Ticket, slot: Slot) -> None:
        worker, samples, descriptor = ticket.worker, len(ticket.numbers), slot.descriptor
        batch_slots.columns(slot.memory, samples)[0] = ticket.numbers
        ticket.slot, ticket.reply = slot, None
        worker.unanswered[slot.number] = ticket
        try:
            worker.pipe.send_bytes(_TASK.pack(slot.number, slot.size_bytes, samples, descriptor is not None))
            if descriptor is not None:
                assert worker.process.pid is not None, "it was started"
                reduction.send_handle(worker.pipe, descriptor, worker.process.pid)
        finally:
            slot.close_descriptor()

    @contextlib.contextmanager
    def _whole_message(self, worker: _Worker) -> Iterator[None]:
        self.is_broken = True
        try:
            yield
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise _ended(worker) from None
        except OSError as error:  # the worker lives, and may wait for the rest of the message
            raise Unavailable(
                f"a batch cannot be handed to a loader process: {error}; a batch that the training keeps takes a "
                "descriptor (`ulimit -n`) and memory: keep fewer, or raise the limit"
            ) from error
        self.is_broken = False


def _ended(worker: _Worker) -> Unavailable:
    worker.process.join()
    hint = "" if worker.has_answered else f"; {SPAWN_HINT}"
    return Unavailable(f"a loader process ended early with exit code {worker.process.exitcode}{hint}")


def _work(source: _Opener, pipe: Connection, inherited: list[Connection]) -> None:
    """Body of a worker process. Ctrl-C, which the terminal sends to it too, is for the training: that closes the
    loader, or goes on with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for other in inherited:
        other.close()
    reader = _Reader(source, pipe)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the loader was closed, or has died
        reader.run()
    reader.close()


class _Reader:
    """Reads several batches at a time, so that this process checks one while storage services read another."""

    def __init__(self, opener: _Opener, pipe: Connection) -> None:
        self._opener = opener
        self._pipe = pipe
        self._source: Source | None = None
        self._memories: dict[int, mmap.mmap] = {}
        self._threads = thread_pool("threefs-batch", _AT_ONCE)

    def run(self) -> None:
        running: deque[Future[bytes]] = deque()
        while True:
            while len(running) < _AT_ONCE and (not running or self._pipe.poll()):
                number, size, samples, is_new = _TASK.unpack(self._pipe.recv_bytes())
                if is_new:
                    self._map(number, size)
                running.append(self._begin(number, samples))
            self._pipe.send_bytes(running.popleft().result())

    def close(self) -> None:
        self._threads.shutdown()
        if self._source is not None:
            self._source.close()

    def _map(self, number: int, size: int) -> None:
        descriptor = reduction.recv_handle(self._pipe)
        self._memories[number] = mmap.mmap(descriptor, size)
        os.close(descriptor)

    def _begin(self, number: int, samples: int) -> Future[bytes]:
        """The reply that will be there when the batch is in its slot."""
        reply: Future[bytes] = Future()
        memory = self._memories[number]
        try:
            if self._source is None:
                self._source = self._opener[0](*self._opener[1])
            location = self._source.locate(batch_slots.columns(memory, samples)[0].tolist())
        except Exception as error:
            reply.set_result(_error_reply(number, error))
            return reply
        needed = batch_slots.head_bytes(samples) + location.nbytes
        if needed > len(memory):
            reply.set_result(_REPLY.pack(_TOO_SMALL, number, needed))
            return reply
        return self._threads.submit(_fill, self._source, location, memory, number)


def _fill(source: Source, location: Location, memory: mmap.mmap, number: int) -> bytes:
    """Read the batch into its slot; the reply."""
    try:
        samples = len(location.numbers)
        head = batch_slots.head_bytes(samples)
        source.read_into(location, memoryview(memory)[head:])
        _, starts, lengths = batch_slots.columns(memory, samples)
        starts[:] = head + location.offsets
        lengths[:] = location.lengths
    except Exception as error:
        return _error_reply(number, error)
    return _REPLY.pack(_DONE, number, 0)


def _error_reply(number: int, error: Exception) -> bytes:
    if isinstance(error, ThreefsError):
        code, text = error.code, error.message
    else:
        code, text = Internal.code, f"a loader process failed: {error!r}"
    content = text.encode(errors="backslashreplace")  # a name may be no Unicode
    return _REPLY.pack(_ERROR, number, code) + content[:_MAX_ERROR_BYTES]
