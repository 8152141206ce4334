"""How far a run is, on the terminal: rates of the last moments, and how long it still takes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from threefs.env.clock import CLOCK
from threefs.errors import InvalidArgument
from threefs_bench.load.meta_engine import LOOKS
from threefs_bench.load.runner import Snapshot
from threefs_bench.load.values import shown_size

_WORDS = {"auto", "always", "never"}
_LINE_S = 1.0
_WRITES = frozenset(("write", "create", "rename", "remove"))


def wanted(eta: str, console: Console) -> bool:
    """Whether the progress is shown. Raises InvalidArgument."""
    if eta not in _WORDS:
        raise InvalidArgument(f"eta={eta} is none of {', '.join(sorted(_WORDS))}")
    return eta == "always" or (eta == "auto" and console.is_terminal)


class Rates:
    """The line that belongs to a snapshot, with the rates since the one before."""

    def __init__(self) -> None:
        self._then_s = 0.0
        self._phase = -1
        self._began_s = 0.0
        self._before: dict[str, list[int]] = {}

    def line(self, snapshot: Snapshot, now_s: float) -> str:
        if snapshot.phase != self._phase:
            self._phase, self._began_s, self._then_s, self._before = snapshot.phase, now_s, now_s, {}
        parts = [f"{snapshot.phase + 1}/{snapshot.phases} {snapshot.state}"]
        if snapshot.state == "prepare":
            return f"{parts[0]}: {snapshot.prepared:,} bytes or names are prepared"
        took_s = max(now_s - self._then_s, 1e-9)
        for label, kinds in (("r", {"read", "verify", *LOOKS}), ("w", _WRITES)):
            operations, transferred = (
                _sum(snapshot.counts, kinds, at) - _sum(self._before, kinds, at) for at in (0, 1)
            )
            if operations > 0:
                moved = f"{shown_size(transferred / took_s)}/s " if transferred else ""
                parts.append(f"{label}={moved}{operations / took_s:,.0f} IOPS")
        self._before, self._then_s = dict(snapshot.counts), now_s
        if 0 < snapshot.fraction < 1:
            left_s = (now_s - self._began_s) * (1 - snapshot.fraction) / snapshot.fraction
            parts.append(f"eta {left_s:.0f} s")
        return ", ".join(parts)


def _sum(counts: dict[str, list[int]], kinds: frozenset[str] | set[str], at: int) -> int:
    return sum(count[at] for kind, count in counts.items() if kind in kinds)


@contextmanager
def shown(eta: str) -> Iterator[Callable[[Snapshot], None]]:
    """The function to call with each snapshot. Raises InvalidArgument."""
    console = Console(stderr=True)
    if not wanted(eta, console):
        yield lambda snapshot: None
        return
    rates = Rates()
    if not console.is_terminal:
        yield _lines(console, rates)
        return
    columns = (BarColumn(bar_width=20), TaskProgressColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task("", total=1.0)
        yield lambda snapshot: bars.update(
            bar, completed=snapshot.fraction, description=rates.line(snapshot, CLOCK.monotonic())
        )


def _lines(console: Console, rates: Rates) -> Callable[[Snapshot], None]:
    """A line each second, for a file or a pipe."""
    last_s = 0.0

    def show(snapshot: Snapshot) -> None:
        nonlocal last_s
        now_s = CLOCK.monotonic()
        if now_s - last_s >= _LINE_S:
            last_s = now_s
            console.print(f"[{snapshot.fraction:4.0%}] {rates.line(snapshot, now_s)}", markup=False, highlight=False)

    return show
