"""`threefs trash`: removed files that are kept for a while."""

import dataclasses
from functools import partial

import click
from threefs_client import AsyncFileSystem
from threefs_client.metadata.trash import Trashed

from threefs_cli import output
from threefs_cli.cluster_selector import ClusterSelector, cluster_options
from threefs_cli.each_path import raise_last, with_each
from threefs_cli.option_types import Duration, format_duration


@click.group()
def trash() -> None:
    """Keep removed files for a while, list them, and put them back."""


@trash.command(
    name="set",
    epilog="""
\b
Examples:
  threefs trash set /projects 7d
  threefs trash set /projects/scratch off
  threefs trash set /projects/scratch --as-above
""",
)
@click.argument("path")
@click.argument("time", type=Duration(), required=False)
@click.option("--as-above", is_flag=True, help="Drop the setting of PATH: that of the directory above applies.")
@cluster_options
def set_trash(selector: ClusterSelector, path: str, time: int | None, as_above: bool) -> None:
    """From now on, keep files that are removed below PATH for TIME, for example 12h or 7d; off keeps none."""
    if (time is None) != as_above:
        raise click.UsageError("give either a TIME, such as 7d, or --as-above")
    selector.run(lambda fs: fs.trash.set(path, time))
    if selector.as_json:
        output.print_json({"path": path, "trash_s": time})


@trash.command(name="list")
@click.option("--user", type=click.IntRange(0), metavar="UID", help="Only files of this user.")
@cluster_options
def list_trash(selector: ClusterSelector, user: int | None) -> None:
    """List the trash: where each file was, where it is, and how long it stays."""

    async def work(fs: AsyncFileSystem) -> list[Trashed]:
        return [item async for item in fs.trash.list(user)]

    found = selector.run(work)
    if selector.as_json:
        output.print_json([_as_json(item) for item in found])
        return
    if not found:
        return
    table = output.table("was", "is", "size", "stays", box=None)
    for item in found:
        size = output.size(item.attributes.length) if item.attributes.is_file else item.attributes.kind
        where = output.printable(item.original) or "(unknown)"
        table.add_row(where, output.printable(item.path), size, format_duration(item.left_s))
    output.print_table(table)


def _as_json(item: Trashed) -> dict[str, object]:
    row: dict[str, object] = {
        field.name: getattr(item, field.name) for field in dataclasses.fields(item) if field.name != "attributes"
    }
    return row | {"kind": item.attributes.kind, "length": item.attributes.length}


@trash.command(
    epilog="""
\b
Examples:
  threefs trash restore /.trash/0/model.bin~3f2-0a1b2c3d
  threefs trash restore /.trash/0/model.bin~3f2-0a1b2c3d --to /models/old.bin
""",
)
@click.argument("paths", nargs=-1, required=True)
@click.option("--to", metavar="PATH", help="Put it at this path, instead of where it was.")
@click.option("-p", "--parents", is_flag=True, help="Make missing directories above it.")
@cluster_options
def restore(selector: ClusterSelector, paths: tuple[str, ...], to: str | None, parents: bool) -> None:
    """Put removed files back. PATHS are those that `threefs trash list` shows in its column `is`.

    One that cannot be put back is reported, and keeps the others from nothing.
    """
    if to is not None and len(paths) > 1:
        raise click.UsageError(f"--to takes one PATH, and {len(paths)} are given")

    async def put_back(fs: AsyncFileSystem, path: str) -> str:
        return await fs.trash.restore(path, to, parents=parents)

    done, failures = selector.run(lambda fs: with_each(paths, partial(put_back, fs)))
    places = [place for _, place in done]
    if selector.as_json:
        output.print_json(places)
    else:
        for place in places:
            click.echo(output.printable(place))
    raise_last(failures)


@trash.command()
@click.option("--user", type=click.IntRange(0), metavar="UID", help="Only files of this user.")
@cluster_options
def empty(selector: ClusterSelector, user: int | None) -> None:
    """Remove everything in the trash for good."""
    count = selector.run(lambda fs: fs.trash.empty(user))
    if selector.as_json:
        output.print_json({"removed": count})
