"""`threefs moves`: the targets that move, how far they are, and when they will be done."""

import asyncio
from typing import Any

import click
from threefs_client import AsyncFileSystem

from threefs_cli import move_rows, output
from threefs_cli.cluster_selector import ClusterSelector, cluster_options
from threefs_cli.cluster_state import read_state, until_answered


@click.command(
    epilog="""
\b
Examples:
  threefs moves
  threefs moves --watch              a line every two seconds, until nothing moves any more
  threefs moves --watch --json       one object a line
"""
)
@click.option("--watch", is_flag=True, help="Say it again and again, until nothing moves.")
@click.option(
    "--interval", "interval_s", type=click.FloatRange(0.1), default=2.0, show_default=True, help="Of --watch, seconds."
)
@cluster_options
def moves(selector: ClusterSelector, watch: bool, interval_s: float) -> None:
    """Show the targets that move between disks: bytes copied so far, and an estimate of the end.

    The estimate takes the rate of the copies that are under way; they yield to clients, so it changes with the load.
    """
    url = selector.url()
    if watch:
        selector.run(lambda fs: _watch(fs, url, interval_s, selector.as_json))
        return
    found = selector.run(lambda fs: _read(fs, url))
    if selector.as_json:
        output.print_json(found)
        return
    if found["moves"]:
        _print_moves(found["moves"])
    click.echo(move_rows.summary_text(found))


async def _read(fs: AsyncFileSystem, url: str) -> dict[str, Any]:
    state = await read_state(fs, url)
    rows = move_rows.move_rows(state)
    return {"moves": rows, **move_rows.summary(state, rows)}


async def _watch(fs: AsyncFileSystem, url: str, interval_s: float, as_json: bool) -> None:
    while True:
        found = await until_answered(lambda: _read(fs, url))
        if as_json:
            output.print_json_line(found)
        else:
            click.echo(move_rows.summary_text(found))
        if not (found["moves"] or found["more_follow"]):
            return
        await asyncio.sleep(interval_s)


def _print_moves(rows: list[dict[str, Any]]) -> None:
    table = output.table("chain", "from node", "to node", "stage", "copied", "of", "left")
    for row in rows:
        left = row["remaining_s"]
        table.add_row(
            str(row["chain_id"]),
            str(row["removed_node"] or "-"),
            str(row["added_node"] or "-"),
            row["stage"],
            output.size(row["copied_bytes"]),
            output.size(row["total_bytes"]),
            "" if left is None else move_rows.about(left),
        )
    output.print_table(table)
