"""The part of one process in a job, and the abilities of each engine."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from threefs.errors import InvalidArgument, NoSpace
from threefs_bench.load import job_file
from threefs_bench.load.job import Job
from threefs_bench.load.tally import Tally
from threefs_bench.load.turns import Turns, Window
from threefs_bench.load.verify import Ledger
from threefs_bench.load.workload import Row, groups, seed_of

#: Bytes of all files are repetitions of this many random ones.
_PATTERN_BYTES = 1 << 20
LAYOUT_BYTES = 1 << 20

Progress = Callable[[int], None]  # bytes or names that were prepared


@dataclass(frozen=True)
class Assignment:
    """The part of one process: the `process`-th of the `number`-th job. `host` is empty unless several take part."""

    job: Job
    number: int
    process: int
    host: str = ""
    key_file: str = ""

    def paths(self) -> list[str]:
        return self.job.paths(self.process, self.host)

    def turns(self, window: Window, ledger: Ledger | None) -> Turns:
        seed = seed_of(self.job, self.number, self.process)
        return Turns(self.job, groups(self.job, seed), window, ledger)

    def ledger(self) -> Ledger | None:
        """None: blocks are not verified."""
        if not self.job["verify"]:
            return None
        block = self.job.block_sizes[0]
        base = int.from_bytes(os.urandom(4), "little")
        return Ledger(self.job.file_bytes // block, self.job.files, block, base)

    def as_json(self) -> dict[str, Any]:
        rest = {"number": self.number, "process": self.process, "host": self.host, "key_file": self.key_file}
        return {"given": dict(self.job.given), "inherited": dict(self.job.inherited), **rest}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Assignment":
        """Raises InvalidArgument."""
        job = job_file.from_json(found)
        try:
            return cls(job, int(found["number"]), int(found["process"]), str(found["host"]), str(found["key_file"]))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidArgument(f"this is not a part of a job: {error}") from None


class Engine(Protocol):
    """One process of a job. After `prepare` and `run`, `verify` reads back what was written."""

    tallies: list[Tally]  # of the slots; of `run`, and of `verify` behind it

    async def prepare(self, progress: Progress) -> None:
        """Create what the job needs, and open it. Raises OSError, InvalidArgument."""
        ...

    async def run(self, window: Window) -> None:
        """Until the job is over, or `stop`. Raises the first error."""
        ...

    async def verify(self, begin_s: float) -> None: ...

    def stop(self) -> None:
        """End soon; what is in flight may end."""
        ...

    def grants(self) -> dict[str, float]:
        """Counters of request-to-send since the client connected, by name. Empty without it."""
        ...

    async def close(self) -> None: ...


def fill(view: memoryview) -> None:
    """Random bytes, so that nothing can be gained by compression of a block."""
    pattern = os.urandom(min(len(view), _PATTERN_BYTES))
    for begin in range(0, len(view), len(pattern)):
        part = view[begin : begin + len(pattern)]
        part[:] = pattern[: len(part)]


def check_room(path: str, missing_bytes: int, free_bytes: int) -> None:
    """Before a file is laid out: a mistake in its size would otherwise fill the disk, and then fail. Raises NoSpace."""
    if missing_bytes > free_bytes:
        raise NoSpace(
            f"{path} is to be laid out with {missing_bytes} bytes more, and {free_bytes} are free there: lower size or "
            "filesize"
        )


def layout_rows(job: Job, file: int) -> Iterator[Row]:
    """Pieces that fill a file: blocks, if they are verified."""
    piece = job.block_sizes[0] if job["verify"] else LAYOUT_BYTES
    whole = job.file_bytes // piece * piece if job["verify"] else job.file_bytes
    for offset in range(0, whole, piece):
        yield file, offset, min(piece, whole - offset)


def laid_out_generation(job: Job, ledger: Ledger, row: Row) -> int:
    """Of a block before the job. Processes that only read may share a file, which each of them may have laid out."""
    return ledger.next_generation(row) if job.writes else 0
