"""`make bench`: threefs, the limits of the machine and other systems in turns, in one run.

    python -m benchmarks --size small --rounds 1 --only client --json bench.json

Each round has every group of loads, in which threefs and what it is compared with take turns.
What cannot be measured here is left out, and the report says why.
"""

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from threefs_bench.peer_harness import HARNESS, NAMES, Harness

from benchmarks import client_rows, mount_rows, peer_rows, plots, report
from benchmarks.measurements import LeftOutError, Measurements
from benchmarks.run_plan import SIZES, Round
from tests.harness.mounts import lacking
from tests.harness.termination import exit_on_signals

ROUNDS = 3
_PEER_S = 1200.0
#: Request-to-send is measured by a program of its own, in namespaces of its own: `make bench-incast`. The option
#: --incast takes its figures into the report.
GROUPS = ("client", "mount", "peers", "database")

Group = Callable[[Round, Measurements], None]


def _tell(line: str) -> None:
    click.echo(line, err=True)


def _needs_mount(group: Group) -> Group:
    def measure(plan: Round, found: Measurements) -> None:
        if reason := lacking():
            raise LeftOutError(reason)
        group(plan, found)

    return measure


def _database(plan: Round, found: Measurements) -> None:
    try:
        from benchmarks import database_rows
    except ImportError as error:
        raise LeftOutError(f"{error.name} is not installed") from None
    database_rows.measure(plan, found)


def _groups(
    only: Sequence[str], harness: Harness | None, peers: Sequence[str], found: Measurements
) -> dict[str, Group]:
    groups: dict[str, Group] = {"client": client_rows.measure, "mount": _needs_mount(mount_rows.measure)}
    if "peers" in only:
        if harness is None:
            found.left_out["peers"] = "PEERS= does not name a harness that brings other systems up"
        else:
            able = peer_rows.install(harness, peers, found)
            groups["peers"] = _needs_mount(lambda plan, into: peer_rows.measure(plan, into, harness, able))
    groups["database"] = _needs_mount(_database)
    return {name: group for name, group in groups.items() if name in only}


def _measure(groups: dict[str, Group], plan: Round, found: Measurements) -> None:
    """One round of all groups. What is left out in one is not tried in the next."""
    for name, group in list(groups.items()):
        _tell(f"== {name}, round {plan.number}")
        try:
            group(plan, found)
        except LeftOutError as error:
            found.left_out[name] = str(error)
            del groups[name]


@click.command()
@click.option("--only", default=",".join(GROUPS), show_default=True, help="Groups of loads, with commas between.")
@click.option("--size", type=click.Choice(list(SIZES)), default="full", show_default=True, help="small: minutes.")
@click.option(
    "--rounds", type=click.IntRange(1, 100), default=ROUNDS, show_default=True, help="Medians are over these."
)
@click.option("--peers", "programs", type=HARNESS, help="Directory of the harness for other systems.")
@click.option("--peer", default=",".join(NAMES), show_default=True, help="Which of them.")
@click.option("--work", type=click.Path(path_type=Path, file_okay=False), help="For all data; peers stay installed.")
@click.option(
    "--incast", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="JSON of `make bench-incast`."
)
@click.option("--plots", "pictures", type=click.Path(path_type=Path, file_okay=False), help="Directory for plots.")
@click.option("--json", "file", type=report.ReportFile(), help="Write the figures there.")
def main(
    only: str,
    size: str,
    rounds: int,
    programs: Path | None,
    peer: str,
    work: Path | None,
    incast: Path | None,
    pictures: Path | None,
    file: Path | None,
) -> None:
    """Measure threefs beside the limits of this machine, and beside other systems. Prints Markdown."""
    chosen = [name for name in only.split(",") if name]
    if unknown := [name for name in chosen if name not in GROUPS]:
        raise click.BadParameter(f"{unknown[0]} is none of {', '.join(GROUPS)}")
    if work is not None:
        work.mkdir(parents=True, exist_ok=True)
    found = Measurements()
    if incast is not None:
        for key, value in json.loads(incast.read_text(encoding="utf-8"))["ratios"].items():
            found.add_number(key, float(value))
    loads = {"load_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="threefs-bench-", dir=work) as name:
        scratch = Path(name)
        scratch.chmod(0o711)  # a database does not run as root
        harness = None
        if programs is not None:
            harness = Harness(programs.absolute(), (work or scratch).absolute() / "peers", size == "small", _PEER_S)
        groups = _groups(chosen, harness, peer.split(","), found)
        for number in range(1, rounds + 1):
            _measure(groups, Round(scratch, SIZES[size], number, _tell), found)
            if file is not None:
                figures = report.as_json(found, size=size, loads=loads)
                file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    click.echo(report.as_markdown(found))
    if pictures is not None:
        for path in plots.write(found, pictures):
            _tell(f"wrote {path}")


if __name__ == "__main__":
    exit_on_signals()
    main()
