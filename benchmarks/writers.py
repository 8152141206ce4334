"""Several processes write a file or files on a directory at the same time, then read what another one has written.

Easy: each process has a file of its own, in blocks of 1 MiB. Hard: all share one file, in which their records of 47,008
bytes take turns; so no record begins at a page, a chunk is written by all of them, and neighbours meet in it.
"""

import multiprocessing
import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

from benchmarks.load_runs import CpuMeter
from benchmarks.measurements import MIB, Sample

PROCESSES = 4
_TIMEOUT_S = 600.0
_STAMP_BYTES = 8
#: Records are parts of this much random data, each at a place of its own, and begin with their number.
_PATTERN = random.Random(47008).randbytes(2 * MIB)


@dataclass(frozen=True, slots=True)
class Shape:
    name: str
    what: str
    record_bytes: int
    shared: bool

    def path(self, place: Path, writer: int) -> Path:
        return place / ("shared" if self.shared else str(writer))

    def records(self, writer: int, writer_bytes: int) -> Iterator[tuple[int, int]]:
        """(offset, number of the record in its file) of one process."""
        for number in range(max(1, writer_bytes // self.record_bytes)):
            number = number * PROCESSES + writer if self.shared else number
            yield number * self.record_bytes, number


EASY = Shape("easy", f"1 MiB blocks of {PROCESSES} processes, a file each", MIB, False)
HARD = Shape("hard", f"47,008-byte records of {PROCESSES} processes, in turns in one file", 47_008, True)
SHAPES = (EASY, HARD)


def record(shape: Shape, writer: int, number: int) -> bytes:
    begin = (number * 4099 + writer * 257) % (len(_PATTERN) - shape.record_bytes)
    stamp = (number << 8 | writer).to_bytes(_STAMP_BYTES, "little")
    return stamp + _PATTERN[begin + _STAMP_BYTES : begin + shape.record_bytes]


def run(place: Path, shape: Shape, writer_bytes: int, *, reading: bool, servers: CpuMeter) -> Sample:
    """From the first open to the last close. Raises OSError, also for bytes that are not what was written."""
    spawn = multiprocessing.get_context("spawn")
    gate = spawn.Barrier(PROCESSES + 1)
    pipes, processes = [], []
    for number in range(PROCESSES):
        receiver, sender = spawn.Pipe(duplex=False)
        part = (place, shape, number, writer_bytes, reading, gate, sender)
        process = spawn.Process(target=_work, args=part, daemon=True)
        process.start()
        sender.close()
        pipes.append(receiver)
        processes.append(process)
    gate.wait(_TIMEOUT_S)
    before_s, begin_s = servers.now_s(), time.monotonic()
    answers = [pipe.recv() for pipe in pipes]
    servers_s = servers.now_s() - before_s
    for process in processes:
        process.join(_TIMEOUT_S)
    if failed := [answer for answer in answers if isinstance(answer, str)]:
        raise OSError(failed[0])
    done = sum(transferred for transferred, _end_s, _cpu_s in answers)
    end_s = max(end_s for _done, end_s, _cpu_s in answers)
    return Sample(done, end_s - begin_s, servers_s + sum(cpu_s for _done, _end_s, cpu_s in answers))


def _work(
    place: Path, shape: Shape, number: int, writer_bytes: int, reading: bool, gate: Barrier, answer: Connection
) -> None:
    """The body of a process: it sends (bytes, moment of the end, CPU seconds), or the error."""
    gate.wait(_TIMEOUT_S)
    before_s = time.process_time()
    try:
        if reading:
            writer = (number + 1) % PROCESSES
            done = _read(shape.path(place, writer), shape, writer, writer_bytes)
        else:
            done = _write(shape.path(place, number), shape, number, writer_bytes)
        answer.send((done, time.monotonic(), time.process_time() - before_s))
    except OSError as error:
        answer.send(f"{shape.name}: {error}")


def _write(path: Path, shape: Shape, writer: int, writer_bytes: int) -> int:
    done = 0
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        for offset, number in shape.records(writer, writer_bytes):
            wanted = record(shape, writer, number)
            if os.pwrite(file, wanted, offset) != len(wanted):
                raise OSError(f"{path}: a short write at offset {offset}")
            done += len(wanted)
        os.fsync(file)
    finally:
        os.close(file)
    return done


def _read(path: Path, shape: Shape, writer: int, writer_bytes: int) -> int:
    done = 0
    file = os.open(path, os.O_RDONLY)
    try:
        for offset, number in shape.records(writer, writer_bytes):
            found = os.pread(file, shape.record_bytes, offset)
            if found != record(shape, writer, number):
                raise OSError(f"{path}: record {number} at offset {offset} is not what was written")
            done += len(found)
    finally:
        os.close(file)
    return done
