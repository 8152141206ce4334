"""`threefs demo`."""

import json
import tempfile
from pathlib import Path

import click

from threefs_cli import output
from threefs_cli.demo import run as demonstration
from threefs_cli.demo.report import Report


@click.command()
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures here.")
@click.option(
    "--dir",
    "parent",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Make the temporary cluster below this directory; it needs 3 GiB.",
)
def demo(json_file: Path | None, parent: Path | None) -> None:
    """Start a cluster in a temporary directory, use it as training does, and check every byte.

    Copies Python's standard library in and reads it back, reads a shuffled epoch of a token dataset with worker
    processes, writes and loads a checkpoint, kills a storage process, and reads everything again. The exit code is 0
    only if every check held.
    """
    with tempfile.TemporaryDirectory(prefix="threefs-demo-", dir=parent) as directory:
        report = demonstration.run(Path(directory) / "cluster", lambda line: click.echo(f"· {line}", err=True))
    show(report, json_file)
    if not report.ok:
        click.get_current_context().exit(1)


def show(report: Report, json_file: Path | None) -> None:
    if json_file is not None:
        json_file.write_text(json.dumps(report.as_json(), indent=2) + "\n", encoding="utf-8")
    output.print_table(report.as_table())
    click.echo(
        f"raw loopback: {output.size(report.loopback_bytes_per_s)}/s by plain TCP sockets between two processes, "
        "measured in this run. Writes make 3 durable copies on this one machine."
    )
    click.echo("Every check held." if report.ok else "NOT every check held.")
