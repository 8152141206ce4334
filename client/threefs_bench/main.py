"""`python -m threefs_bench`: measurements on the command line."""

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

import click
import uvloop
from rich.console import Console
from rich.table import Table
from threefs_cli.cluster_file import Plan
from threefs_cli.local_cluster import LocalCluster

from threefs_bench import engines, mount, smoke

#: It is opened before the measurement, not only when there is something to lose.
_REPORT = click.File("w", encoding="utf-8", lazy=False)


@click.group()
def main() -> None:
    """Measure a cluster, and the limits of its machine."""


@main.command("smoke")
@click.option("--address", help="Cluster to measure, threefs://HOST:PORT.  [default: start one]")
@click.option(
    "--disk",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Directory on the disk of the cluster.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=smoke.ROUNDS,
    show_default=True,
    help="Rounds; the results are medians over them.",
)
@click.option("--json", "file", type=_REPORT, help="Write the figures here too.")
def smoke_command(address: str | None, disk: Path | None, rounds: int, file: TextIO | None) -> None:
    """Ratios of the hot paths to raw sockets and to fio, in about two minutes.

    \b
    Example: python -m threefs_bench smoke --json smoke.json
    """
    console = Console(stderr=True)
    try:
        figures = uvloop.run(_smoke(address, disk, rounds, console))
    except OSError as error:
        raise click.ClickException(str(error)) from None
    table = Table("figure", "value")
    for name, value in figures.items():
        table.add_row(name, f"{value:,.3f}" if isinstance(value, float) else str(value))
    Console().print(table)
    if file is not None:
        file.write(json.dumps(figures, indent=2) + "\n")


async def _smoke(address: str | None, disk: Path | None, rounds: int, console: Console) -> dict[str, float | str | int]:
    with tempfile.TemporaryDirectory(prefix="threefs-bench-", dir=disk) as place:
        if address is not None:
            return (await smoke.measure(address, Path(place), console.print, rounds=rounds)).table()
        cluster = LocalCluster(Path(place) / "cluster")
        console.print("starting a cluster of 3 storage processes")
        started = await cluster.up(Plan(storage=3, replicas=3))
        try:
            return (await smoke.measure(started.address, Path(place), console.print, rounds=rounds)).table()
        finally:
            await cluster.down()


@main.command("engines")
@click.option(
    "--engine", "urls", multiple=True, required=True, metavar="URL", help="An empty store; several may be named."
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=engines.SECONDS,
    show_default=True,
    help="Duration of each measurement.",
)
@click.option("--json", "file", type=_REPORT, help="Write the figures here too.")
def engines_command(urls: tuple[str, ...], seconds: float, file: TextIO | None) -> None:
    """Durable transactions per second of the engines that metadata can be kept in.

    \b
    Example: python -m threefs_bench engines --engine rocks:///tmp/kv --engine etcd://127.0.0.1:2379/bench
    """
    try:
        rates = [rate for url in urls for rate in uvloop.run(engines.measure(url, seconds=seconds))]
    except OSError as error:
        raise click.ClickException(str(error)) from None
    table = Table("engine", "transaction", "in flight", "per second", "p50 ms", "p99 ms", "CPU µs")
    for rate in rates:
        numbers = (f"{rate.per_s:,.0f}", f"{rate.p50_ms:.2f}", f"{rate.p99_ms:.2f}", f"{rate.cpu_us:.0f}")
        table.add_row(rate.engine, rate.what, str(rate.in_flight), *numbers)
    Console().print(table)
    if file is not None:
        file.write(json.dumps([asdict(rate) for rate in rates], indent=2) + "\n")


@main.command("mount")
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--files", type=click.IntRange(min=1), default=mount.FILES, show_default=True, help="Number of files.")
@click.option("--apart", is_flag=True, help="Only with 64 processes, each in a directory of its own.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def mount_command(directory: Path, files: int, apart: bool, as_json: bool) -> None:
    """Rates of metadata operations in a directory: of a mount, or of a local disk to compare with.

    With one process and with four in one directory, and with 64 in a directory each. Root also drops the kernel's
    caches.

    \b
    Example: python -m threefs_bench mount /mnt/data
    """
    try:
        rows = mount.measure(directory, files=files, processes=() if apart else mount.PROCESSES)
    except OSError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(mount.as_json(rows))
        return
    table = Table("operation", "per second", "p50 ms", "p99 ms", "CPU s per 1000")
    for row in rows:
        numbers = (f"{row.per_s:,.0f}", f"{row.p50_ms:.3f}", f"{row.p99_ms:.3f}", f"{row.cpu_s_per_1000:.3f}")
        table.add_row(row.name, *numbers)
    Console().print(table)
