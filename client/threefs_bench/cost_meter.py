"""The cost of a piece of work: elapsed seconds, and CPU seconds of the whole machine."""

import os
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from threefs.env.clock import CLOCK

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass
class Round:
    """One timed piece of work. The caller sets `amount`, in bytes or operations."""

    seconds: float = 0.0
    cpu_s: float = 0.0
    amount: float = 0.0

    @property
    def rate(self) -> float:
        return self.amount / self.seconds


@dataclass
class Series:
    """Rounds of the same work; its rates are medians over the rounds."""

    rounds: list[Round] = field(default_factory=list)

    @contextmanager
    def round(self) -> Iterator[Round]:
        one = Round()
        cpu, begin = busy_s(), CLOCK.monotonic()
        yield one
        one.seconds = CLOCK.monotonic() - begin
        one.cpu_s = busy_s() - cpu
        self.rounds.append(one)

    @property
    def rate(self) -> float:
        return statistics.median(one.rate for one in self.rounds)

    def cpu_per(self, unit: float) -> float:
        """CPU seconds of all processes of the machine per `unit` of work."""
        return statistics.median(one.cpu_s / one.amount * unit for one in self.rounds)


def busy_s(stat: Path = Path("/proc/stat")) -> float:
    """CPU seconds that all cores have been busy since the machine started."""
    return busy_ticks(stat.read_text().split("\n", 1)[0].split()[1:]) / _TICKS_PER_S


def busy_ticks(fields: Sequence[str]) -> int:
    """Of the first line of /proc/stat: user, nice, system, irq, softirq, steal; not idle and iowait."""
    ticks = [int(value) for value in fields[:8]]
    return sum(ticks) - ticks[3] - ticks[4]


def process_cpu_s(pid: int) -> float:
    """CPU seconds of a process, with all its threads, since it started."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def resident_bytes(process: int) -> int:
    """Memory of a process that is in RAM now."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
