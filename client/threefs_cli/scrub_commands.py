"""`threefs scrub`: the reading of all stored bytes in the background, which finds damage before readers do."""

from typing import Any

import click
from rich.table import Table

from threefs.wire import manager_pb2 as pb
from threefs_cli import move_rows, output
from threefs_cli.cluster_selector import ClusterSelector, cluster_options
from threefs_cli.cluster_state import ClusterState, read_state


@click.group()
def scrub() -> None:
    """The scrubber of each storage node reads all its chunks slowly, so that damage is found and repaired in time."""


@scrub.command(
    epilog="""
\b
Examples:
  threefs scrub status
  threefs scrub status --json
"""
)
@cluster_options
def status(selector: ClusterSelector) -> None:
    """Show for each target when it was read in full last, how far the pass under way is, and what was found.

    Counts begin with the start of the storage process.
    """
    url = selector.url()
    rows = scrub_rows(selector.run(lambda fs: read_state(fs, url)))
    if selector.as_json:
        output.print_json({"targets": rows})
        return
    table = Table("node", "target", "now", "last pass ended", "passes", "damaged", "repaired", "not yet", "lost")
    for row in rows:
        table.add_row(
            str(row["node_id"]),
            str(row["target_id"]),
            f"{row['pass_chunks']} of {row['chunks']} chunks" if row["scrubbing"] else "waits",
            "not since its start" if row["since_pass_s"] is None else f"{move_rows.about(row['since_pass_s'])} ago",
            str(row["passes"]),
            *(str(row[f"{name}_chunks"]) for name in ("damaged", "repaired", "unrepaired", "lost")),
        )
    output.print_table(table)


def scrub_rows(state: ClusterState) -> list[dict[str, Any]]:
    """One row per target, by node."""
    return [
        _row(found, report)
        for found in sorted(state.status.nodes, key=lambda row: row.node.node_id)
        if found.node.kind == pb.STORAGE
        for report in sorted(found.targets, key=lambda report: report.target_id)
    ]


def _row(found: pb.NodeStatus, report: pb.TargetReport) -> dict[str, Any]:
    return {
        "node_id": found.node.node_id,
        "target_id": report.target_id,
        "scrubbing": report.scrubbing,
        "pass_chunks": report.pass_chunks,
        "chunks": report.chunks,
        "passes": report.scrub_passes,
        "since_pass_s": report.unscrubbed_ms // 1000 if report.scrub_passes else None,
        "interval_s": report.scrub_interval_ms // 1000,
        "scrubbed_chunks": report.scrubbed_chunks,
        "scrubbed_bytes": report.scrubbed_bytes,
        "damaged_chunks": report.damaged_chunks,
        "repaired_chunks": report.repaired_chunks,
        "unrepaired_chunks": report.unrepaired_chunks,
        "lost_chunks": report.lost_chunks,
    }


COMMANDS = (scrub,)
