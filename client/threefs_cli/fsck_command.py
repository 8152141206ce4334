"""`threefs fsck`."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click
from threefs_client import AsyncFileSystem, paths
from threefs_fsck import Report, check

from threefs.errors import InvalidArgument, ThreefsError
from threefs_cli import output
from threefs_cli.cluster_selector import ClusterSelector, cluster_options


class _Failed(click.ClickException):
    """The check could not be done. Exit codes are those of fsck(8)."""

    exit_code = 8


class _Misused(click.ClickException):
    exit_code = 16


class _Cancelled(click.ClickException):
    exit_code = 32


class _Command(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise _Misused(error.format_message()) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.UsageError, InvalidArgument) as error:
            raise _Misused(str(error)) from None
        except ThreefsError as error:
            raise _Failed(str(error)) from None
        except KeyboardInterrupt:
            raise _Cancelled("the check was cancelled") from None


@click.command(
    cls=_Command,
    epilog="""
\b
Examples:
  threefs fsck
  threefs fsck --repair --json

\b
Exit codes, as of fsck(8):
  0  nothing is wrong          8  the check could not be done
  1  all findings are repaired   16  the command line is wrong
  4  findings are left  32  cancelled
""",
)
@click.option("--repair", is_flag=True, help="Repair what is wrong. Without it nothing is changed.")
@cluster_options
def fsck(selector: ClusterSelector, repair: bool) -> None:
    """Check names, links, queues and chunks of a cluster while it is in use.

    Each finding is checked twice before it is reported or repaired. A repair moves files without a name to /lost+found.
    docs/fsck.md explains the findings.
    """

    async def work(fs: AsyncFileSystem) -> Report:
        with _progress(quiet=selector.as_json) as progress:
            return await check(fs, repair=repair, progress=progress)

    report = selector.run(work)
    if selector.as_json:
        output.print_json(describe(report))
    else:
        for line in lines(report):
            click.echo(line)
    click.get_current_context().exit(report.exit_code)


def describe(report: Report) -> dict[str, Any]:
    found = [asdict(finding) | {"name": paths.decode(finding.name)} for finding in report.findings]
    return {
        "entries": report.entries,
        "inodes": report.inodes,
        "chunks": report.chunks,
        "complete": report.complete,
        "degraded_chains": report.degraded_chains,
        "findings": found,
        "kinds": dict(report.kinds),
        "exit_code": report.exit_code,
    }


def lines(report: Report) -> Iterator[str]:
    for finding in report.findings:
        mark = "repaired" if finding.repaired else "wrong"
        yield f"{mark}: {finding.kind.replace('_', ' ')}: {output.printable(finding.detail)}"
    if not report.complete:
        yield "there are more findings than one run reports: run `threefs fsck --repair`, then check again"
    if count := len(report.degraded_chains):
        chains = output.count_of(count, "chain lacks", "chains lack")
        yield f"{chains} copies: only the targets that serve were checked (`threefs status` shows which do not)"
    looked = f"{report.entries} entries, {report.inodes} inodes, {report.chunks} chunks"
    yield f"{looked}: " + (f"{len(report.findings)} findings" if report.findings else "clean")


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[str, int], None]]:
    if quiet or not sys.stderr.isatty():
        yield lambda title, rows: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}: {task.completed}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bars: dict[str, Any] = {}

        def step(title: str, rows: int) -> None:
            if title not in bars:
                bars[title] = progress.add_task(title, total=None)
            progress.update(bars[title], advance=rows)

        yield step
