"""`make bench-scale`: what the model says of 180 storage nodes and 400 to 1,000 clients.

    python -m benchmarks.scale                     the table and, with --plots, pictures
    python -m benchmarks.scale --calibrate         first measure this machine, and keep what was found in --calibration

Minutes on one core. The same seed gives the same figures.
"""

import dataclasses
import json
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks import charts, report
from benchmarks.measurements import MIB
from benchmarks.scale import calibrate, calibration
from benchmarks.scale.calibration import Calibration
from benchmarks.scale.model import Outcome, Scenario, simulate

CLIENTS = (400, 700, 1000)
_WHOLE = Scenario()
_REPEAT_S = 5e-3  # of a lossy fabric: about the least timeout of TCP that is set in data centres
#: What if the hosts were so fast that links are the limit? Cores ten times as fast, and disks of PCIe 4.
_FAST_CORES, _FAST_DISK = 10.0, 7e9
_CALIBRATION_S = 3.0
_CALIBRATION_BYTES = 256 * MIB


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    scenario: Scenario
    costs: Calibration


def cases(whole: Scenario, costs: Calibration) -> Iterator[Case]:
    """`whole` is the cluster with all clients."""
    change = dataclasses.replace
    budgets = (("on", whole.senders), ("off", None))
    for clients in (whole.clients * count // CLIENTS[-1] for count in CLIENTS):
        for what, senders in budgets:
            scenario = change(whole, clients=clients, senders=senders)
            yield Case(f"{clients} clients, request-to-send {what}", scenario, costs)
    for placement, dead in (("random", 0), ("solver", 1), ("random", 1)):
        name = f"{whole.clients} clients, placement by {placement}, {dead} nodes dead"
        yield Case(name, change(whole, placement=placement, dead_nodes=dead), costs)
    few = whole.clients * CLIENTS[0] // CLIENTS[-1]
    for fabric, repeat_s in (("lossless", None), ("lossy", _REPEAT_S)):
        for what, senders in budgets:
            links = change(whole.links, repeat_s=repeat_s)
            scenario = change(whole, clients=few, senders=senders, links=links)
            name = f"{few} clients, fast hosts, {fabric} fabric, request-to-send {what}"
            yield Case(name, scenario, costs.faster(_FAST_CORES, _FAST_DISK))


def run(whole: Scenario, costs: Calibration, jobs: int) -> dict[str, Outcome]:
    named = list(cases(whole, costs))
    if jobs == 1:
        return {case.name: _told(case) for case in named}
    with ProcessPoolExecutor(jobs) as pool:
        return dict(zip((case.name for case in named), pool.map(_told, named), strict=True))


def _told(case: Case) -> Outcome:
    begin_s = time.monotonic()
    outcome = simulate(case.scenario, case.costs)
    click.echo(f"{case.name}: {time.monotonic() - begin_s:.0f} s", err=True)
    return outcome


def table(found: dict[str, Outcome]) -> str:
    lines = ["| scenario | read | of the limit | p50 | p99 | slowest client | busiest disk (average) | sent again |"]
    lines.append("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, one in found.items():
        latency = f"{one.p50_ms:.1f} ms | {one.p99_ms:.1f} ms"
        disks = f"{one.busiest_disk:.0%} ({one.average_disk:.0%})"
        lines.append(
            f"| {name} | {one.gib_per_s / 1024:.2f} TiB/s | {one.share:.0%} | {latency} | {one.slowest_client:.0%} "
            f"| {disks} | {one.dropped:,} |"
        )
    return "\n".join(lines) + "\n"


def _write_plot(found: dict[str, Outcome], directory: Path) -> Path:
    """Raises ImportError without matplotlib."""
    names = list(found)
    axes = charts.axes(2 * len(names), "Reads of the model: rate, and latency (p50 to p99)")
    rates = axes.barh(names, [one.gib_per_s / 1024 for one in found.values()], height=0.6)
    axes.bar_label(rates, [f"{one.p50_ms:.1f} to {one.p99_ms:.1f} ms" for one in found.values()], padding=3)
    axes.set_xlabel("TiB/s")
    axes.margins(x=0.25)
    return charts.save(axes, directory / "scale.svg")


@click.command()
@click.option("--clients", default=CLIENTS[-1], show_default=True, help="Most clients; also 40 % and 70 % of them.")
@click.option("--nodes", default=_WHOLE.nodes, show_default=True, help="Storage nodes of 16 disks.")
@click.option("--senders", default=_WHOLE.senders, show_default=True, help="Budget of a client with request-to-send.")
@click.option("--seed", default=1, show_default=True)
@click.option("--jobs", default=1, show_default=True, help="Scenarios at a time.")
@click.option("--calibrate", "fresh", is_flag=True, help="Measure this machine first.")
@click.option("--calibration", "costs", type=click.Path(path_type=Path), default=calibration.FILE, help="Its file.")
@click.option("--plots", "pictures", type=click.Path(path_type=Path, file_okay=False), help="Directory for plots.")
@click.option("--json", "file", type=report.ReportFile(), help="Write the figures there.")
def main(
    clients: int,
    nodes: int,
    senders: int,
    seed: int,
    jobs: int,
    fresh: bool,
    costs: Path,
    pictures: Path | None,
    file: Path | None,
) -> None:
    """Simulate reads of a large cluster. Prints a Markdown table."""
    if fresh:
        with tempfile.TemporaryDirectory(prefix="threefs-scale-") as scratch:
            measured = calibrate.measure(Path(scratch), seconds=_CALIBRATION_S, file_bytes=_CALIBRATION_BYTES)
        calibration.save(measured, costs)
    found = run(Scenario(clients=clients, nodes=nodes, senders=senders, seed=seed), calibration.load(costs), jobs)
    click.echo(table(found))
    if file is not None:
        figures = {name: dataclasses.asdict(outcome) for name, outcome in found.items()}
        file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    if pictures is not None:
        click.echo(f"wrote {_write_plot(found, pictures)}", err=True)


if __name__ == "__main__":
    main()
