"""`threefs put`, `get`, `cat`."""

import base64
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import BinaryIO, cast

import click
from aiofiles.os import wrap
from threefs_client import AsyncFileSystem

from threefs.env import standard_streams
from threefs.env.clock import CLOCK
from threefs.errors import IsADirectory, NotADirectory, ThreefsError
from threefs_cli import output, tree_copy
from threefs_cli.cluster_selector import ClusterSelector, cluster_options
from threefs_cli.each_path import raise_last, with_each
from threefs_cli.error_names import with_filename
from threefs_cli.local_tree import LocalTree
from threefs_cli.remote_tree import RemoteTree
from threefs_cli.tree_copy import CopyProgress

_CAT_BYTES = 8 << 20
_MAX_WARNINGS = 5


@click.command(
    epilog="""
\b
Examples:
  threefs put model.bin /models/model.bin
  threefs put -r photos/ /photos         as /photos; if that exists, as /photos/photos
  threefs put a.txt b.txt /texts         into the directory /texts
  pg_dump base | threefs put - /backups/base.sql
"""
)
@click.argument("sources", nargs=-1, required=True, metavar="LOCAL...")
@click.argument("destination", metavar="PATH")
@click.option("-r", "--recursive", is_flag=True, help="Copy directories with their content.")
@cluster_options
def put(selector: ClusterSelector, sources: tuple[str, ...], destination: str, recursive: bool) -> None:
    """Copy local files into the cluster; - is standard input.

    An existing file is replaced in one step, when the new one is whole. Symbolic links below a directory are copied as
    links. Nothing is written through symbolic links in the cluster. Set-user-id bits are not copied.
    """
    if "-" in sources:
        _put_standard_input(selector, sources, destination)
        return

    async def work(fs: AsyncFileSystem) -> LocalTree:
        (found,) = await fs.stat_many([destination])
        tree = LocalTree()
        into = found is not None and found.is_directory
        add = wrap(tree.add)
        for source, target in tree_copy.destinations(sources, destination, into=into):
            await add(source, target, recursive=recursive)
        tree_copy.check_copies(tree)
        await _copy(selector, tree, lambda moved: tree_copy.put(fs, tree, moved))
        return tree

    _tell_skipped(selector.run(work).skipped)


def _tell_skipped(skipped: Sequence[str]) -> None:
    """Raises ClickException if there are any."""
    for path in skipped[:_MAX_WARNINGS]:
        click.echo(f"skipped {output.printable(path)}: neither a file nor a directory", err=True)
    if skipped:
        count = output.count_of(len(skipped), "file was", "files were")
        raise click.ClickException(f"{count} not copied, being neither files nor directories; all others were")


def _put_standard_input(selector: ClusterSelector, sources: tuple[str, ...], destination: str) -> None:
    if len(sources) > 1:
        raise click.UsageError("standard input (-) cannot be copied together with other files")

    async def work(fs: AsyncFileSystem) -> int:
        (found,) = await fs.stat_many([destination])
        if found is not None and found.is_directory:
            raise IsADirectory(f"{destination} is a directory; add the name that standard input gets in it")
        if destination.endswith("/"):
            raise NotADirectory(f"{destination} is not a directory; `threefs mkdir -p` makes one")
        return await tree_copy.put_stream(fs, sys.stdin.buffer, destination)

    length = selector.run(work)
    if selector.as_json:
        output.print_json({"files": 1, "length_bytes": length})


@click.command(
    epilog="""
\b
Examples:
  threefs get /models/model.bin .
  threefs get -r /photos back
  threefs get /backups/base.sql - | psql base
"""
)
@click.argument("sources", nargs=-1, required=True, metavar="PATH...")
@click.argument("destination", metavar="LOCAL")
@click.option("-r", "--recursive", is_flag=True, help="Copy directories with their content.")
@cluster_options
def get(selector: ClusterSelector, sources: tuple[str, ...], destination: str, recursive: bool) -> None:
    """Copy files of the cluster to the local disk; the destination - is standard output.

    An existing file is replaced in one step, when the new one is whole. Nothing below the destination is written
    through symbolic links. Permissions are those of the file less the umask; set-user-id bits are not copied.
    """
    if not destination:
        raise click.UsageError("an empty name is no place for a copy; . is the current directory")
    descriptor = None if destination == "-" else standard_streams.descriptor_of(destination)
    if destination == "-" or descriptor is not None:
        if recursive or selector.as_json:
            raise click.UsageError(f"standard output ({destination}) takes files only: leave -r and --json out")
        with _opened(descriptor, destination) as out:
            _, failures = selector.run(lambda fs: _write_out(fs, sources, out))
        raise_last(failures)
        return

    into = os.path.isdir(destination)

    async def work(fs: AsyncFileSystem) -> RemoteTree:
        tree = RemoteTree()
        for source, target in tree_copy.destinations(sources, destination, into=into):
            await tree.add(fs, source, target, recursive=recursive)
        tree_copy.check_copies(tree)
        await _copy(selector, tree, lambda moved: tree_copy.get(fs, tree, moved, named_in_full=not into))
        return tree

    _tell_skipped(selector.run(work).skipped)


@contextmanager
def _opened(descriptor: int | None, name: str) -> Iterator[BinaryIO]:
    """A descriptor that the command was started with, for writing; None: standard output."""
    if descriptor is None:
        yield sys.stdout.buffer
        return
    with with_filename(name):
        copy = os.dup(descriptor)
    with open(copy, "wb", buffering=0) as out:
        yield cast(BinaryIO, out)


async def _copy(
    selector: ClusterSelector, tree: LocalTree | RemoteTree, copy: Callable[[CopyProgress], Awaitable[None]]
) -> None:
    """Copy with a progress bar, and print a summary. A file may have another length by now than when it was listed."""
    length_bytes = 0

    def count(files: int, size: int) -> None:
        nonlocal length_bytes
        length_bytes += size
        show(files, size)

    start = CLOCK.monotonic()
    with _progress(tree, quiet=selector.as_json) as show:
        await copy(count)
    seconds = max(CLOCK.monotonic() - start, 1e-6)
    directories = tree.directories if isinstance(tree.directories, int) else len(tree.directories)
    facts = {
        "files": len(tree.files),
        "directories": directories,
        "symlinks": len(tree.symlinks),
        "length_bytes": length_bytes,
        "seconds": round(seconds, 3),
        "skipped": tree.skipped,
    }
    if selector.as_json:
        output.print_json(facts)
    else:
        rate = output.size(length_bytes / seconds)
        files = output.count_of(len(tree.files), "file", "files")
        click.echo(f"{files}, {output.size(length_bytes)} in {seconds:.1f} s ({rate}/s)")


@contextmanager
def _progress(tree: LocalTree | RemoteTree, *, quiet: bool) -> Iterator[CopyProgress]:
    if quiet or not sys.stderr.isatty():
        yield lambda files, size: None
        return
    from threefs_cli.transfer_bar import transfer_bar

    with transfer_bar(len(tree.files) + len(tree.symlinks), tree.length_bytes) as moved:
        yield moved


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@cluster_options
def cat(selector: ClusterSelector, paths: tuple[str, ...]) -> None:
    """Write the content of files to standard output; with --json in base64.

    One that cannot be read is reported, and keeps the others from nothing.
    """

    async def whole(fs: AsyncFileSystem, path: str) -> dict[str, object]:
        content = await fs.read_file(path)
        return {"path": path, "length_bytes": len(content), "base64": base64.b64encode(content).decode()}

    if selector.as_json:
        rows, failures = selector.run(lambda fs: with_each(paths, partial(whole, fs)))
        output.print_json([row for _, row in rows])
    else:
        _, failures = selector.run(lambda fs: _write_out(fs, paths, sys.stdout.buffer))
    raise_last(failures)


async def _write_out(
    fs: AsyncFileSystem, paths: tuple[str, ...], out: BinaryIO
) -> tuple[list[tuple[str, None]], list[ThreefsError]]:
    """The content of files, to a stream."""

    async def write(path: str) -> None:
        async with await fs.open(path) as file:
            while piece := await file.read(_CAT_BYTES):
                await standard_streams.write(out, piece)

    return await with_each(paths, write)
