"""`make bench-grow`: a cluster that is extended, drained and repaired under load, and what 180 machines would ask for.

python -m benchmarks.grow --size small --only placement,dead_disk --json grow.json
"""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import click

from benchmarks import report
from benchmarks.grow import cluster_rows, manager_rows, placement_rows
from benchmarks.grow.goals import GOALS
from benchmarks.grow.run_plan import SIZES, Run
from benchmarks.measurements import Measurements
from tests.harness.termination import exit_on_signals

GROUPS: dict[str, Callable[[Run, Measurements], None]] = {
    "placement": placement_rows.measure_placement,
    "dead_disk": placement_rows.measure_dead_disk,
    "manager": manager_rows.measure,
    "grow": cluster_rows.measure,
}


def _tell(line: str) -> None:
    click.echo(line, err=True)


def _chosen(text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    if unknown := [name for name in names if name not in GROUPS]:
        raise click.BadParameter(f"{unknown[0]} is none of {', '.join(GROUPS)}")
    return names


@click.command()
@click.option("--only", default=",".join(GROUPS), show_default=True, help="Groups, with commas between.")
@click.option("--size", type=click.Choice(list(SIZES)), default="full", show_default=True, help="small: a minute.")
@click.option("--processes", type=click.IntRange(3), help="Storage processes that the manager hears.")
@click.option("--json", "file", type=report.ReportFile(), help="Write the figures there.")
def main(only: str, size: str, processes: int | None, file: Path | None) -> None:
    """Measure what a cluster costs that changes while it runs. Prints Markdown."""
    found = Measurements()
    loads = {"load_before": os.getloadavg()[0]}
    groups = _chosen(only)
    with tempfile.TemporaryDirectory(prefix="threefs-bench-") as name:
        for group in groups:
            _tell(f"== {group}")
            GROUPS[group](Run(Path(name), SIZES[size], processes or SIZES[size].processes, _tell), found)
            if file is not None:
                figures = report.as_json(found, size=size, loads=loads, judged=GOALS)
                file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    click.echo(report.as_markdown(found, GOALS))


if __name__ == "__main__":
    exit_on_signals()
    main()
