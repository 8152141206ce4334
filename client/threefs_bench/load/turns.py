"""Which call comes next and when: limits of bytes and time, rates, syncs, and the order of verified blocks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from threefs_bench.load.job import Job
from threefs_bench.load.values import Pair
from threefs_bench.load.verify import Ledger
from threefs_bench.load.workload import Group, Row

#: Calls that were not sent in time may be made up for, but no more than this.
_BURST_S = 0.1


class Turn(NamedTuple):
    is_write: bool
    rows: list[Row]  # none: the rates let nothing more begin, and the job lasts until `start_s`, as with fio
    start_s: float  # not before
    sync: str  # after it: "", "fsync" or "fdatasync"


@dataclass(frozen=True, slots=True)
class Window:
    """The time of a run, on the clock of its process. The load begins at `load_s`, the measurement at `begin_s`."""

    load_s: float
    begin_s: float
    end_s: float

    @classmethod
    def of(cls, job: Job, now_s: float) -> "Window":
        begin_s = now_s + float(job["ramp_time"])
        return cls(now_s, begin_s, begin_s + float(job["runtime"]) if job["runtime"] else float("inf"))


class Turns:
    """Shared by the slots of a process, which take turns one at a time."""

    def __init__(self, job: Job, groups: Iterator[Group], window: Window, ledger: Ledger | None = None) -> None:
        self.stopped = False
        self._groups = groups
        self._window = window
        self._ledger = ledger
        self._left_bytes = float("inf") if job["time_based"] else job.pass_bytes
        self._pace = Pace(job["rate"], job["rate_iops"])
        self._syncs = [(every, name) for name in ("fsync", "fdatasync") if (every := int(job[name]))]
        self._writes = 0

    def take(self, now_s: float) -> Turn | None:
        """None when the job is over."""
        if self.stopped or now_s >= self._window.end_s or self._left_bytes <= 0:
            return None
        is_write, rows = next(self._groups)
        if self._ledger is not None:
            while not (rows := self._ledger.take(rows)):
                is_write, rows = next(self._groups)
        size = rows[0][2] if len(rows) == 1 else sum([row[2] for row in rows])
        start_s = self._pace.start_s(is_write, now_s, len(rows), size) if self._pace.limits else now_s
        if start_s >= self._window.end_s:
            if self._ledger is not None:
                self._ledger.give_back(rows)
            return Turn(is_write, [], self._window.end_s, "")
        if max(start_s, now_s) >= self._window.begin_s:
            self._left_bytes -= size
        return Turn(is_write, rows, start_s, self._sync(len(rows)) if is_write and self._syncs else "")

    def end(self, turn: Turn) -> None:
        """Nothing of the turn is in flight any more."""
        if self._ledger is not None:
            self._ledger.give_back(turn.rows)

    def _sync(self, rows: int) -> str:
        before, self._writes = self._writes, self._writes + rows
        for every, name in self._syncs:
            if self._writes // every != before // every:
                return name
        return ""


class Pace:
    """When operations may begin, so that bytes and operations per second of each direction stay below their rates."""

    def __init__(self, rate: Pair, rate_iops: Pair) -> None:
        self._rates = ((rate.read, rate_iops.read), (rate.write, rate_iops.write))
        self._free_s: list[float | None] = [None, None]  # when the next one may begin; None: there was none yet
        self.limits = any(limit for rates in self._rates for limit in rates)

    def start_s(self, is_write: bool, now_s: float, operations: int, size: int) -> float:
        bytes_per_s, per_s = self._rates[is_write]
        if not bytes_per_s and not per_s:
            return now_s
        cost_s = max(size / bytes_per_s if bytes_per_s else 0.0, operations / per_s if per_s else 0.0)
        free_s = self._free_s[is_write]
        start_s = now_s if free_s is None else max(free_s, now_s - _BURST_S)
        self._free_s[is_write] = start_s + cost_s
        return start_s
