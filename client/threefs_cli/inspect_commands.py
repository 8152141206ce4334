"""`threefs ls`, `stat`, `du`, `df`. A path that cannot be shown is reported, and keeps the others from nothing."""

from functools import partial
from typing import Any

import click
from threefs_client import AsyncFileSystem, Attributes, paths

from threefs_cli import output
from threefs_cli.cluster_selector import ClusterSelector, cluster_options
from threefs_cli.each_path import raise_last, with_each

#: (path, name as it is shown, attributes)
_Row = tuple[str, str, Attributes]


@click.command(
    epilog="""
\b
Examples:
  threefs ls /
  threefs ls -l /data /photos
"""
)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("-l", "--long", is_flag=True, help="Permissions, links, owner, length, time.")
@cluster_options
def ls(selector: ClusterSelector, paths: tuple[str, ...], long: bool) -> None:
    """List directories; a file lists itself. Without a path, the root."""
    listed = paths or ("/",)

    found, failures = selector.run(lambda fs: with_each(listed, partial(_entries, fs)))
    if selector.as_json:
        rows = [
            {"name": name, **output.attributes_json(path, entry)}
            for _, entries in found
            for path, name, entry in entries
        ]
        output.print_json(rows)
    else:
        _print_entries(found, titled=len(listed) > 1, long=long)
    raise_last(failures)


def _print_entries(found: list[tuple[str, list[_Row]]], *, titled: bool, long: bool) -> None:
    for number, (path, entries) in enumerate(found):
        if titled:
            click.echo(("\n" if number else "") + f"{output.printable(path)}:")
        for _, name, entry in entries:
            mark = "/" if entry.is_directory else ""
            click.echo(output.long_line(name + mark, entry) if long else output.printable(name) + mark)


async def _entries(fs: AsyncFileSystem, path: str) -> list[_Row]:
    found = await fs.stat(path)
    if not found.is_directory:
        return [(path, path, found)]
    entries = []
    async for entry in fs.list(path, with_attributes=True):
        assert entry.attributes is not None, "they were asked for"
        entries.append((paths.join(path, entry.name), entry.name, entry.attributes))
    return entries


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@cluster_options
def stat(selector: ClusterSelector, paths: tuple[str, ...]) -> None:
    """Show all attributes of files, directories or links."""

    async def described(fs: AsyncFileSystem, path: str) -> dict[str, Any]:
        return output.attributes_json(path, await fs.stat(path, follow=False))

    found, failures = selector.run(lambda fs: with_each(paths, partial(described, fs)))
    rows = [row for _, row in found]
    if selector.as_json:
        output.print_json(rows)
    else:
        _print_attributes(rows)
    raise_last(failures)


def _print_attributes(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        for name, value in row.items():
            shown = f"{value} ({output.timestamp(value)})" if name.endswith("_ns") else output.printable(str(value))
            click.echo(f"{name:>13}  {shown}")


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@cluster_options
def du(selector: ClusterSelector, paths: tuple[str, ...]) -> None:
    """Count the files, directories and bytes of directory trees. Bytes are those of one copy."""
    listed = paths or ("/",)

    found, failures = selector.run(lambda fs: with_each(listed, fs.usage))
    if selector.as_json:
        output.print_json(
            [
                {
                    "path": path,
                    "files": usage.files,
                    "directories": usage.directories,
                    "symlinks": usage.symlinks,
                    "length_bytes": usage.length,
                }
                for path, usage in found
            ]
        )
    else:
        for path, usage in found:
            files = output.count_of(usage.files, "file", "files")
            directories = output.count_of(usage.directories, "directory", "directories")
            click.echo(f"{output.size(usage.length):>10}  {files}, {directories}  {output.printable(path)}")
    raise_last(failures)


@click.command()
@cluster_options
def df(selector: ClusterSelector) -> None:
    """Show the space of the cluster's disks. Each byte of a file takes one byte per replica."""

    async def work(fs: AsyncFileSystem) -> dict[str, int]:
        space = await fs.statfs()
        return {
            "capacity_bytes": space.capacity_bytes,
            "used_bytes": space.used_bytes,
            "free_bytes": space.free_bytes,
            "inodes": space.inodes,
            "replicas": space.replicas,
        }

    found = selector.run(work)
    if selector.as_json:
        output.print_json(found)
        return
    table = output.table("disks", "used", "free", "free for files", "replicas", "inodes")
    table.add_row(
        output.size(found["capacity_bytes"]),
        output.size(found["used_bytes"]),
        output.size(found["free_bytes"]),
        output.size(found["free_bytes"] / max(1, found["replicas"])),
        str(found["replicas"]),
        str(found["inodes"]),
    )
    output.print_table(table)
