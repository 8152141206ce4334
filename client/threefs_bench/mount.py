"""Metadata operations by plain system calls in any directory: of a mount, or of a local disk to compare with."""

import asyncio
import contextlib
import json
import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from threefs.env.clock import CLOCK
from threefs_bench.cost_meter import busy_s

FILES = 5000
PROCESSES = (1, 4)  # in one directory, in which the kernel allows one change at a time
APART = (64,)  # each in a directory of its own, so that many calls are in flight
CAP_S = 15.0  # a step ends after this time, with the operations done by then
#: A directory is listed in milliseconds, so it is listed several times, each time by other processes.
_LISTINGS = 3
_PAUSE_S = 1.1  # before each: most systems keep attributes for a second
_PERCENTILES = (0.5, 0.99)
_READY_S = 0.001

Action = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of system call by several processes at once, each on its own files: `create_p4` is four processes in one
    directory, `create_p64_apart` is 64 processes with a directory each."""

    name: str
    per_s: float
    p50_ms: float
    p99_ms: float
    cpu_s_per_1000: float  # of the whole machine
    operations: int


@dataclass(frozen=True, slots=True)
class _Done:
    """By one process: when it began and ended, and what each operation took, in seconds."""

    begin_s: float
    end_s: float
    latencies: list[float]


def measure(
    directory: Path,
    *,
    files: int = FILES,
    processes: Sequence[int] = PROCESSES,
    apart: Sequence[int] = APART,
    cap_s: float = CAP_S,
) -> list[Row]:
    """Create, stat, list, scan, rename and remove empty files. Before each step the kernel's caches are dropped, if
    this process may do that."""
    place = directory / f"bench-{os.getpid()}"
    place.mkdir()
    try:
        rows: list[Row] = []
        for count in processes:
            rows += _steps(place / f"{count}", f"p{count}", [""] * count, files, cap_s)
        for count in apart:
            directories = [f"{part}/" for part in range(count)]
            rows += _steps(place / f"{count}-apart", f"p{count}_apart", directories, files, cap_s)
        return rows
    finally:
        shutil.rmtree(place)


def _steps(place: Path, label: str, directories: Sequence[str], files: int, cap_s: float) -> Iterable[Row]:
    """All steps, with one process for each of the directories."""
    count = len(directories)
    for directory in {"", *directories}:
        (place / directory).mkdir(exist_ok=True)
    names = [
        [f"{place}/{directory}{part}.{number}" for number in range(max(1, files // count))]
        for part, directory in enumerate(directories)
    ]
    listed = [[f"{place}/{directory}"] for directory in directories]
    for name, action in (("create", _create), ("stat", os.stat), ("rename", _rename), ("unlink", _unlink)):
        row, done = _step(f"{name}_{label}", action, names, cap_s)
        if name != "stat":  # what comes next uses what this one has finished
            names = [part[:number] for part, number in zip(names, done, strict=True)]
        yield row
        if name == "stat":
            together = sum(map(len, names)) // len(set(directories))
            for name, action in (("readdir", _list), ("scan", _scan)):
                yield _step(f"{name}_{label}", action, listed, cap_s, each=together, times=_LISTINGS)[0]


def _forget_caches() -> None:
    """Drop the kernel's caches.

    Only root may do that, and not in every container; else the kernel answers for new files.
    """
    os.sync()
    with contextlib.suppress(OSError):
        Path("/proc/sys/vm/drop_caches").write_text("3", encoding="ascii")


def _pause(seconds: float) -> None:
    asyncio.run(CLOCK.sleep(seconds))


def _create(path: str) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))


def _rename(path: str) -> None:
    os.rename(path, f"{path}.r")


def _unlink(path: str) -> None:
    os.unlink(f"{path}.r")


def _list(path: str) -> None:
    os.listdir(path)


def _scan(path: str) -> None:
    with os.scandir(path) as entries:
        for entry in entries:
            entry.stat()


def _step(
    name: str, action: Action, items: Sequence[Sequence[str]], cap_s: float, each: int = 1, times: int = 1
) -> tuple[Row, list[int]]:
    """Run one process for each list of items, `times` times in sequence. One operation counts as `each`, for listings.

    Returns the row, and the number of items that each process finished in the last run.
    """
    latencies: list[float] = []
    seconds = busy = 0.0
    for number in range(times):
        if number:
            _pause(_PAUSE_S)
        answers, took, used = _run_together(action, items, cap_s)
        latencies += [one for answer in answers for one in answer]
        seconds, busy = seconds + took, busy + used
    latencies.sort()
    operations = len(latencies) * each
    middle, high = (latencies[min(len(latencies) - 1, int(at * len(latencies)))] * 1e3 for at in _PERCENTILES)
    row = Row(name, operations / seconds, middle, high, busy / operations * 1000, operations)
    return row, [len(answer) for answer in answers]


def _run_together(
    action: Action, items: Sequence[Sequence[str]], cap_s: float
) -> tuple[list[list[float]], float, float]:
    """(latencies of the operations of each process, elapsed time, CPU time of the machine), in seconds."""
    _forget_caches()
    fork = multiprocessing.get_context("fork")
    gate = fork.Barrier(len(items) + 1)
    workers, pipes = [], []
    for part in items:
        receiver, sender = fork.Pipe(duplex=False)
        worker = fork.Process(target=lambda part=part, sender=sender: _work(action, part, cap_s, gate.wait, sender))
        worker.start()
        sender.close()
        workers.append(worker)
        pipes.append(receiver)
    while gate.n_waiting < len(items):  # until then they use the processor too
        _pause(_READY_S)
    busy = busy_s()
    gate.wait()
    answers = [pipe.recv() for pipe in pipes]
    busy = busy_s() - busy
    for worker in workers:
        worker.join()
    done = [answer for answer in answers if isinstance(answer, _Done)]
    if len(done) < len(answers):
        raise OSError(next(answer for answer in answers if isinstance(answer, str)))
    # By their own clocks, which are one: when we wake up, the first may have ended.
    seconds = max(answer.end_s for answer in done) - min(answer.begin_s for answer in done)
    return [answer.latencies for answer in done], max(seconds, 1e-9), busy


def _work(action: Action, items: Sequence[str], cap_s: float, start: Callable[[], object], answer: Connection) -> None:
    """Body of a process: sends what it has done, or the error, as `answer`."""
    start()
    latencies: list[float] = []
    first = now = CLOCK.monotonic()
    try:
        for item in items:
            begin = CLOCK.monotonic()
            action(item)
            now = CLOCK.monotonic()
            latencies.append(now - begin)
            if now > first + cap_s:
                break
    except OSError as error:
        answer.send(f"{type(error).__name__}: {error}")
    else:
        answer.send(_Done(first, now, latencies))


def as_json(rows: Iterable[Row]) -> str:
    return json.dumps([asdict(row) for row in rows], indent=1) + "\n"
