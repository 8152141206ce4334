"""The report of a demonstration: measurements and checks."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table
from rich.text import Text

from threefs.env.clock import CLOCK, Clock
from threefs_cli import output


@dataclass(slots=True)
class Step:
    """One step. `seconds` is the time in the file system, without the making and checking of content."""

    name: str
    things: str = ""  # "1823 files"
    length_bytes: int = 0
    seconds: float = 0.0
    checks: list[tuple[str, bool]] = field(default_factory=list)

    @property
    def bytes_per_s(self) -> float:
        return self.length_bytes / self.seconds if self.seconds else 0.0

    @property
    def held(self) -> bool:
        return bool(self.checks) and all(held for _, held in self.checks)

    def check(self, what: str, held: bool) -> None:
        self.checks.append((what, held))


class Report:
    def __init__(self, clock: Clock = CLOCK) -> None:
        self.steps: list[Step] = []
        self.loopback_bytes_per_s = 0.0
        self._clock = clock

    @property
    def ok(self) -> bool:
        return bool(self.steps) and all(step.held for step in self.steps)

    def begin(self, name: str) -> Step:
        step = Step(name)
        self.steps.append(step)
        return step

    @contextmanager
    def timed(self, step: Step) -> Iterator[None]:
        start = self._clock.monotonic()
        try:
            yield
        finally:
            step.seconds += self._clock.monotonic() - start

    def over_loopback(self, step: Step) -> float:
        return step.bytes_per_s / self.loopback_bytes_per_s if self.loopback_bytes_per_s else 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "raw_loopback_bytes_per_s": round(self.loopback_bytes_per_s),
            "steps": [
                {
                    "name": step.name,
                    "things": step.things,
                    "length_bytes": step.length_bytes,
                    "seconds": round(step.seconds, 3),
                    "bytes_per_s": round(step.bytes_per_s),
                    "over_raw_loopback": round(self.over_loopback(step), 4),
                    "checks": [{"what": what, "held": held} for what, held in step.checks],
                }
                for step in self.steps
            ],
        }

    def as_table(self) -> Table:
        table = Table("step", "what", "bytes", "seconds", "per second", "of raw loopback", "checked")
        for column in table.columns[2:6]:
            column.justify = "right"
        for step in self.steps:
            measured = step.length_bytes > 0
            table.add_row(
                step.name,
                step.things,
                output.size(step.length_bytes) if measured else "",
                f"{step.seconds:.2f}",
                f"{output.size(step.bytes_per_s)}/s" if measured else "",
                f"{self.over_loopback(step):.1%}" if measured else "",
                _verdict(step),
            )
        return table


def _verdict(step: Step) -> Text:
    if step.held:
        return Text("held", "green")
    broken = [what for what, held in step.checks if not held]
    return Text(f"BROKEN: {'; '.join(broken) or 'nothing checked'}", "red")
