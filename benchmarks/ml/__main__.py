"""`make bench-ml`: what training uses, beside the load generator and what others use, in turns, in one run.

    python -m benchmarks.ml --size small --rounds 1 --only loader --json ml.json

What cannot be measured here is left out, and the report says why.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import click
from threefs_bench.peer_harness import HARNESS, NAMES, Harness

from benchmarks import report
from benchmarks.measurements import Measurements
from benchmarks.ml import checkpoint_rows, loader_rows, resume_rows
from benchmarks.ml.goals import GOALS
from benchmarks.ml.run_plan import SIZES, Round
from tests.harness.termination import exit_on_signals

ROUNDS = 3
GROUPS: dict[str, Callable[[Round, Measurements], None]] = {
    "loader": loader_rows.measure,
    "resume": resume_rows.measure,
    "checkpoint": checkpoint_rows.measure,
}


OTHERS = (*loader_rows.OVER_MOUNT, *checkpoint_rows.NEEDED)
_PEER_S = 1200.0


def _tell(line: str) -> None:
    click.echo(line, err=True)


def _names(text: str, known: Sequence[str]) -> list[str]:
    names = [name for name in text.split(",") if name]
    if unknown := [name for name in names if name not in known]:
        raise click.BadParameter(f"{unknown[0]} is none of {', '.join(known)}")
    return names


@click.command()
@click.option("--only", default=",".join(GROUPS), show_default=True, help="Groups, with commas between.")
@click.option("--size", type=click.Choice(list(SIZES)), default="full", show_default=True, help="small: a minute.")
@click.option(
    "--rounds", type=click.IntRange(1, 100), default=ROUNDS, show_default=True, help="Medians are over these."
)
@click.option(
    "--beside",
    default=",".join(OTHERS),
    show_default=True,
    help=f"Others that are measured too; with --peers also {', '.join(NAMES)}.",
)
@click.option("--peers", "programs", type=HARNESS, help="Directory of the harness for other systems.")
@click.option("--work", type=click.Path(path_type=Path, file_okay=False), help="For all data; peers stay installed.")
@click.option("--histories", type=click.IntRange(1), help="Random histories of stops and resumptions.")
@click.option("--kills", type=click.IntRange(1), help="Kills of a job that saves.")
@click.option("--mosaic-python", default=sys.executable, help="An interpreter that has mosaicml-streaming.")
@click.option("--json", "file", type=report.ReportFile(), help="Write the figures there.")
def main(
    only: str,
    size: str,
    rounds: int,
    beside: str,
    programs: Path | None,
    work: Path | None,
    histories: int | None,
    kills: int | None,
    mosaic_python: str,
    file: Path | None,
) -> None:
    """Measure the loader and checkpoints. Prints Markdown."""
    chosen, others = _names(only, tuple(GROUPS)), _names(beside, (*OTHERS, *NAMES))
    sizes = SIZES[size]
    sizes = replace(sizes, histories=histories or sizes.histories, kills=kills or sizes.kills)
    found = Measurements()
    loads = {"load_before": os.getloadavg()[0]}
    if work is not None:
        work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="threefs-bench-", dir=work) as name:
        harness = None
        if programs is not None:
            harness = Harness(programs.absolute(), (work or Path(name)).absolute() / "peers", size == "small", _PEER_S)
        for number in range(1, rounds + 1):
            for group in chosen:
                _tell(f"== {group}, round {number}")
                GROUPS[group](Round(Path(name), sizes, number, others, mosaic_python, _tell, harness), found)
                if file is not None:
                    figures = report.as_json(found, size=size, loads=loads, judged=GOALS)
                    file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    click.echo(report.as_markdown(found, GOALS))


if __name__ == "__main__":
    exit_on_signals()
    main()
