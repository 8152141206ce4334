"""`threefs trash`: what was removed, for a while."""

import dataclasses
import re

import click
from rich.table import Table
from threefs_client import AsyncFileSystem
from threefs_client.metadata.trash import Trashed

from threefs_cli import output
from threefs_cli.cluster_selector import ClusterSelector, cluster_options

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}


class Duration(click.ParamType[int]):
    """Seconds; "off" is 0."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value).lower()
        found = re.fullmatch(r"(\d+)([smhdw])", text)
        if found is None and text != "off":
            self.fail(f"{value!r} is not a time: say for example 12h, 7d, 4w or off", param, ctx)
        return int(found[1]) * _UNITS_S[found[2]] if found else 0


def format_duration(seconds: int) -> str:
    """In the largest unit that does not hide much of it."""
    for unit, size in reversed(_UNITS_S.items()):
        if seconds >= 2 * size or unit == "s":
            return f"{seconds // size}{unit}"
    raise AssertionError("the loop ends with seconds")


@click.group()
def trash() -> None:
    """What is removed below some directories is kept for a while, and can be put back."""


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
@click.option("--as-above", is_flag=True, help="No setting of its own: that of the directory above counts.")
@cluster_options
def set_trash(selector: ClusterSelector, path: str, time: int | None, as_above: bool) -> None:
    """Keep what is removed below PATH, from now on, for TIME: like 12h, 7d or off."""
    if (time is None) != as_above:
        raise click.UsageError("say a time, or --as-above")
    selector.run(lambda fs: fs.trash.set(path, time))
    if selector.as_json:
        output.print_json({"path": path, "trash_s": time})


@trash.command(name="list")
@click.option("--user", type=click.IntRange(0), metavar="UID", help="Only what belongs to a user.")
@cluster_options
def list_trash(selector: ClusterSelector, user: int | None) -> None:
    """Show what is in the trash, where it was, and how long it will stay."""

    async def work(fs: AsyncFileSystem) -> list[Trashed]:
        return [item async for item in fs.trash.list(user)]

    found = selector.run(work)
    if selector.as_json:
        output.print_json([_as_json(item) for item in found])
        return
    if not found:
        return
    table = Table("was", "is", "size", "stays", box=None)
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
@click.option("--to", metavar="PATH", help="Another place than the old one.")
@click.option("-p", "--parents", is_flag=True, help="Make missing directories.")
@cluster_options
def restore(selector: ClusterSelector, paths: tuple[str, ...], to: str | None, parents: bool) -> None:
    """Put back what `threefs trash list` shows as PATHS."""
    if to is not None and len(paths) > 1:
        raise click.UsageError("--to is for one thing only")

    async def work(fs: AsyncFileSystem) -> list[str]:
        return [await fs.trash.restore(path, to, parents=parents) for path in paths]

    places = selector.run(work)
    if selector.as_json:
        output.print_json(places)
        return
    for place in places:
        click.echo(output.printable(place))


@trash.command()
@click.option("--user", type=click.IntRange(0), metavar="UID", help="Only what belongs to a user.")
@cluster_options
def empty(selector: ClusterSelector, user: int | None) -> None:
    """Remove for good what is in the trash."""
    count = selector.run(lambda fs: fs.trash.empty(user))
    if selector.as_json:
        output.print_json({"removed": count})


COMMANDS = (trash,)
