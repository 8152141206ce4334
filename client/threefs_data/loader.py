"""Reads an epoch in batches with several worker processes, in an order that does not depend on their number.

Worker i mod workers reads batch i and sends it through its own pipe. A worker has one batch in memory and waits while
its pipe is full, so memory is bounded by about two batches per worker.
"""

import multiprocessing
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Protocol

import numpy as np

from threefs.errors import Corrupt, Internal, InvalidArgument, ThreefsError, Unavailable, error_of
from threefs_data.dataset import TABLES_BYTES, Dataset
from threefs_data.epochs import Epoch
from threefs_data.filesystem_protocol import FileSystem

_BATCH, _ERROR, _END = 1, 2, 3
_HEADER = struct.Struct("<BI")  # what follows; samples of the batch, or code of the error


@dataclass(frozen=True, slots=True)
class Batch:
    numbers: list[int]
    samples: list[memoryview]


@dataclass(frozen=True, slots=True)
class Plan:
    """The work of one worker process."""

    path: str
    epoch: Epoch
    batch_size: int
    first: int
    step: int
    tables_bytes: int = TABLES_BYTES


class _Context(Protocol):
    def Pipe(self, duplex: bool = True) -> tuple[Connection, Connection]: ...  # noqa: N802

    def Process(self, *, target: object, args: object, daemon: bool) -> BaseProcess: ...  # noqa: N802


def batches(
    fs: FileSystem, path: str, epoch: Epoch, *, batch_size: int, workers: int = 0, start_method: str = "spawn"
) -> Iterator[Batch]:
    """The batches of `epoch`, in order. With `workers` = 0 this process reads them itself.

    `fs` travels to the workers: with the start method "spawn" it must be one that can be pickled. Raises what reading
    raises, and Unavailable when a worker dies.
    """
    if workers < 0:
        raise InvalidArgument(f"{workers} workers are not possible; give 0 (read in this process) or more")
    if workers == 0:
        return _read(fs, Plan(path, epoch, batch_size, 0, 1))
    plans = [Plan(path, epoch, batch_size, first, workers) for first in range(workers)]
    return _read_by_workers(fs, plans, start_method)


def _read(fs: FileSystem, plan: Plan) -> Iterator[Batch]:
    with Dataset(fs, plan.path, tables_bytes=plan.tables_bytes) as dataset:
        for numbers in plan.epoch.batches(len(dataset), plan.batch_size, first=plan.first, step=plan.step):
            yield Batch(numbers, dataset.read(numbers))


def _read_by_workers(fs: FileSystem, plans: list[Plan], start_method: str) -> Iterator[Batch]:
    context: _Context = multiprocessing.get_context(start_method)  # type: ignore[assignment]
    processes: list[BaseProcess] = []
    pipes: list[Connection] = []
    try:
        for plan in plans:
            receiver, sender = context.Pipe(duplex=False)
            pipes.append(receiver)
            # A forked worker inherits our ends of the pipes, which would keep the others waiting if we are killed.
            inherited = pipes if start_method == "fork" else []
            process = context.Process(target=_work, args=(fs, plan, sender, inherited), daemon=True)
            process.start()
            processes.append(process)
            sender.close()
        turn = 0
        while (batch := _receive(pipes[turn], processes[turn])) is not None:
            yield batch
            turn = (turn + 1) % len(plans)
    finally:
        for pipe in pipes:
            pipe.close()  # a worker that still sends ends with a broken pipe
        for process in processes:
            process.terminate()
            process.join()


def _work(fs: FileSystem, plan: Plan, sender: Connection, inherited: list[Connection]) -> None:
    """Body of a worker process."""
    for pipe in inherited:
        pipe.close()
    try:
        for batch in _read(fs, plan):
            sender.send_bytes(encode(batch))
        sender.send_bytes(_HEADER.pack(_END, 0))
    except BrokenPipeError:
        pass  # the reader has stopped early
    except ThreefsError as error:
        sender.send_bytes(_HEADER.pack(_ERROR, error.code) + error.message.encode())
    except Exception as error:
        sender.send_bytes(_HEADER.pack(_ERROR, Internal.code) + f"a loader process failed: {error!r}".encode())


def _receive(pipe: Connection, process: BaseProcess) -> Batch | None:
    try:
        content = pipe.recv_bytes()
    except (EOFError, OSError):
        process.join()
        raise Unavailable(f"a loader process ended early with exit code {process.exitcode}") from None
    kind, value = _HEADER.unpack_from(content)
    if kind == _ERROR:
        raise error_of(value, content[_HEADER.size :].decode())
    return None if kind == _END else decode(content)


def encode(batch: Batch) -> bytes:
    """Kind and count, numbers, lengths, then the samples one after the other."""
    numbers = np.array(batch.numbers, "<u8").tobytes()
    lengths = np.array([len(sample) for sample in batch.samples], "<u8").tobytes()
    return b"".join([_HEADER.pack(_BATCH, len(batch.numbers)), numbers, lengths, *batch.samples])


def decode(content: bytes) -> Batch:
    """Raises Corrupt."""
    _, count = _HEADER.unpack_from(content)
    start = _HEADER.size + 16 * count
    if start > len(content):
        raise Corrupt("a batch of a loader process is cut short")
    numbers, lengths = np.frombuffer(content, "<u8", 2 * count, _HEADER.size).reshape(2, count).tolist()
    view = memoryview(content)
    samples = []
    for length in lengths:
        samples.append(view[start : start + length])
        start += length
    if start != len(content):
        raise Corrupt("a batch of a loader process has another size than it says")
    return Batch(numbers, samples)
