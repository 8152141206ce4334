"""`threefs mkdir`, `rm`, `mv`, `ln`."""

from functools import partial

import click
from threefs_client import AsyncFileSystem
from threefs_client.metadata.namespace import requested_layout

from threefs.errors import IsADirectory, NotADirectory, NotFound, ThreefsError
from threefs_cli import output
from threefs_cli.cluster_selector import ClusterSelector, cluster_options
from threefs_cli.cluster_state import check_table
from threefs_cli.each_path import raise_last, with_each
from threefs_cli.option_types import Size


@click.command(
    epilog="""
\b
Examples:
  threefs mkdir -p /data/images
  threefs mkdir --chunk 64K /databases     for files with small pages: see docs/mount.md
"""
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("-p", "--parents", is_flag=True, help="Make missing parents too; an existing directory is no error.")
@click.option("--chunk", type=Size(), default=0, help="Chunk size of new files in the directory.")
@click.option("--stripe", type=click.IntRange(0), default=0, help="Chains over which a new file is spread.")
@click.option("--table", "table_id", type=click.IntRange(1), help="Chain table of new files in the directory.")
@cluster_options
def mkdir(
    selector: ClusterSelector, paths: tuple[str, ...], parents: bool, chunk: int, stripe: int, table_id: int | None
) -> None:
    """Make directories.

    One that cannot be made is reported, and keeps the others from nothing.
    """
    url = selector.url()
    layout = requested_layout(chunk, stripe, table_id or 0)  # or nothing is made

    async def make(fs: AsyncFileSystem, path: str) -> None:
        try:
            await fs.mkdir(path, parents=parents)
        except NotFound as error:
            raise NotFound(f"{error}; mkdir -p makes the missing directories above") from None
        if layout is not None:
            await fs.set_layout(path, chunk_bytes=chunk, stripe=stripe, table_id=table_id or 0)

    async def work(fs: AsyncFileSystem) -> tuple[list[tuple[str, None]], list[ThreefsError]]:
        if table_id is not None:
            await check_table(fs, url, table_id)  # or nothing is made
        return await with_each(paths, partial(make, fs))

    made, failures = selector.run(work)
    _print_json_facts(selector, made=[path for path, _ in made])
    raise_last(failures)


@click.command(
    epilog="""
\b
Examples:
  threefs rm /data/a.bin /data/b.bin
  threefs rm -r /data/old
"""
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("-r", "--recursive", is_flag=True, help="Remove directories with their content.")
@click.option("-f", "--force", is_flag=True, help="Ignore names that do not exist.")
@cluster_options
def rm(selector: ClusterSelector, paths: tuple[str, ...], recursive: bool, force: bool) -> None:
    """Remove files and links; with -r also directories. A whole tree disappears in one step.

    One that cannot be removed is reported, and keeps the others from nothing.
    """

    async def remove(fs: AsyncFileSystem, path: str) -> bool:
        try:
            await (fs.remove(path, recursive=True) if recursive else fs.unlink(path))
        except (NotFound, NotADirectory):
            if not force or (await fs.stat_many([path], follow=False))[0] is not None:
                raise  # it is there: the place of the trash is none
            return False
        except IsADirectory as error:
            raise IsADirectory(f"{error}; rm -r removes it with its content") from None
        return True

    done, failures = selector.run(lambda fs: with_each(paths, partial(remove, fs)))
    _print_json_facts(selector, removed=[path for path, was_there in done if was_there])
    raise_last(failures)


@click.command()
@click.argument("source")
@click.argument("destination")
@click.option("-n", "--no-replace", is_flag=True, help="Fail if the destination exists.")
@cluster_options
def mv(selector: ClusterSelector, source: str, destination: str, no_replace: bool) -> None:
    """Rename a file or directory in one step. If DESTINATION is a directory, move it into that."""

    async def work(fs: AsyncFileSystem) -> str:
        target = await _destination_in(fs, source, destination, moves=True)
        await fs.rename(source, target, replace=not no_replace, always_moves=True)
        return target

    _print_json_facts(selector, source=source, destination=selector.run(work))


@click.command(
    epilog="""
\b
Examples:
  threefs ln /data/a.bin /data/same.bin        two names of one file
  threefs ln -s ../shared/a.bin /data/a.link   a symbolic link
"""
)
@click.argument("source")
@click.argument("destination")
@click.option("-s", "--symbolic", is_flag=True, help="A link that holds the path SOURCE, which need not exist.")
@cluster_options
def ln(selector: ClusterSelector, source: str, destination: str, symbolic: bool) -> None:
    """Give a file another name. If DESTINATION is a directory, make the name in it."""

    async def work(fs: AsyncFileSystem) -> str:
        target = await _destination_in(fs, source, destination)
        await (fs.symlink(source, target) if symbolic else fs.hard_link(source, target))
        return target

    _print_json_facts(selector, source=source, destination=selector.run(work))


async def _destination_in(fs: AsyncFileSystem, source: str, destination: str, *, moves: bool = False) -> str:
    """The path that `source` gets: the destination, or its own name in a destination that is a directory.

    Raises NotADirectory for a destination that ends with / and is none, unless it is the new name of a directory.
    """
    (found,) = await fs.stat_many([destination])
    name = source.rstrip("/").rpartition("/")[2]
    if found is not None and found.is_directory:
        return f"{destination.rstrip('/')}/{name}" if name else destination
    if destination.endswith("/") and not (moves and (await fs.stat(source, follow=False)).is_directory):
        raise NotADirectory(f"{destination} is not a directory; `threefs mkdir -p` makes one")
    return destination


def _print_json_facts(selector: ClusterSelector, **facts: object) -> None:
    if selector.as_json:
        output.print_json(facts)
