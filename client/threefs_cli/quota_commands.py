"""`threefs quota`: limits of directory trees and users."""

import dataclasses

import click
from threefs_client import AsyncFileSystem
from threefs_client.metadata.quotas import Quota

from threefs_cli import output
from threefs_cli.cluster_selector import ClusterSelector, cluster_options
from threefs_cli.option_types import Size


@click.group()
def quota() -> None:
    """Limit the bytes and inodes of a directory tree, or of a user."""


@quota.command(
    name="set",
    epilog="""
\b
Examples:
  threefs quota set /projects/vision --bytes 10T --inodes 5000000
  threefs quota set --user 1000 --bytes 500G
  threefs quota set /projects/vision --inodes 0    removes this limit; that of the bytes stays
  threefs quota set /scratch                    counts, without a limit
""",
)
@click.argument("path", required=False)
@click.option("--user", type=click.IntRange(0), metavar="UID", help="The quota of a user, instead of a directory.")
@click.option("--bytes", "limit_bytes", type=Size(), help="Limit of the sum of file lengths; 0: no limit.")
@click.option(
    "--inodes", "limit_inodes", type=click.IntRange(0), help="Limit of files, directories and links; 0: no limit."
)
@cluster_options
def set_quota(
    selector: ClusterSelector, path: str | None, user: int | None, limit_bytes: int | None, limit_inodes: int | None
) -> None:
    """Set or change a quota. A limit that is not given stays as it is; a new quota does not have it.

    Files that exist already are counted in the background.
    """

    async def work(fs: AsyncFileSystem) -> Quota | None:
        await fs.quotas.set(path, uid=user, limit_bytes=limit_bytes, limit_inodes=limit_inodes)
        return await fs.quotas.show(path, uid=user)

    _print(selector, selector.run(work))


@quota.command()
@click.argument("path", required=False)
@click.option("--user", type=click.IntRange(0), metavar="UID", help="Of a user, instead of a directory.")
@cluster_options
def show(selector: ClusterSelector, path: str | None, user: int | None) -> None:
    """Show the quota that PATH counts for, or that of a user; without both, all quotas."""

    async def work(fs: AsyncFileSystem) -> Quota | list[Quota] | None:
        if path is None and user is None:
            return await fs.quotas.list()
        return await fs.quotas.show(path, uid=user)

    _print(selector, selector.run(work))


@quota.command()
@click.argument("path", required=False)
@click.option("--user", type=click.IntRange(0), metavar="UID", help="Of a user, instead of a directory.")
@cluster_options
def clear(selector: ClusterSelector, path: str | None, user: int | None) -> None:
    """Remove a quota. Files stay as they are."""
    selector.run(lambda fs: fs.quotas.clear(path, uid=user))
    _print(selector, None)


def _print(selector: ClusterSelector, found: Quota | list[Quota] | None) -> None:
    if selector.as_json:
        output.print_json(
            [dataclasses.asdict(one) for one in found]
            if isinstance(found, list)
            else None
            if found is None
            else dataclasses.asdict(found)
        )
        return
    rows = found if isinstance(found, list) else [] if found is None else [found]
    if not rows:
        return
    table = output.table("of", "bytes", "limit", "inodes", "limit", "", box=None)
    for one in rows:
        table.add_row(
            f"user {one.uid}" if one.path is None else output.printable(one.path),
            output.size(one.used_bytes),
            output.size(one.limit_bytes) if one.limit_bytes else "-",
            str(one.used_inodes),
            str(one.limit_inodes) if one.limit_inodes else "-",
            "counting" if one.counting else "",
        )
    output.print_table(table)
