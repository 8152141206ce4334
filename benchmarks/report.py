"""The report of a run: Markdown tables for people, and one flat JSON object for programs."""

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks import goals
from benchmarks.goals import GOALS, Goal
from benchmarks.measurements import Measurements


class ReportFile(click.Path):
    """The type of an option: a file that is written in the end. Its directory is there before hours of measurement."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not path.parent.is_dir():
            self.fail(f"there is no directory {str(path.parent)!r}.", param, ctx)
        return path


def machine() -> dict[str, str | int]:
    return {"cores": os.cpu_count() or 1, "kernel": platform.release(), "python": platform.python_version()}


def as_json(
    found: Measurements, *, size: str, loads: Mapping[str, float], judged: Sequence[Goal] = GOALS
) -> dict[str, str | int | float]:
    """`loads` are moments of the machine's own load, which tell whether it was quiet."""
    return {**machine(), "size": size, **loads, **found.flat(), **goals.values(found, judged)}


def as_markdown(found: Measurements, judged: Sequence[Goal] = GOALS) -> str:
    return "\n".join([*_goals(found, judged), "", *_rows(found), *_left_out(found), ""])


def _goals(found: Measurements, judged: Sequence[Goal]) -> list[str]:
    values = goals.values(found, judged)
    lines = ["| figure | value | goal | reached |", "|---|---:|---:|---|"]
    for goal in judged:
        if goal.key not in values:
            continue
        value = values[goal.key]
        bound = "" if goal.bound is None else f"{'≤' if goal.is_most else '≥'} {goal.bound:.3g}"
        reached = {True: "yes", False: "no", None: ""}[goal.reached(value)]
        lines.append(f"| `{goal.key}` | {number(value)} | {bound} | {reached} |")
    return lines


def _rows(found: Measurements) -> list[str]:
    if not found.rows:
        return []
    lines = [
        "| load | what | rate | spread | CPU | rounds | how the data are checked |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    for name, row in found.rows.items():
        cost = f"{row.cpu:.3g} s/{'GiB' if row.load.in_bytes else '1000'}"
        measured = f"{number(row.rate)} {row.load.unit} | {row.spread:.0%} | {cost} | {len(row.samples)}"
        lines.append(f"| `{name}` | {row.load.what} | {measured} | {row.load.check} |")
    return lines


def _left_out(found: Measurements) -> list[str]:
    return [f"\n{name}: not in all rounds, {why}" for name, why in found.left_out.items()]


def number(value: float) -> str:
    """With three digits or more."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
