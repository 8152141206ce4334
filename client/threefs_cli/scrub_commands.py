"""`threefs scrub`: the reading of all stored bytes in the background, which finds damage before readers do."""

from collections.abc import Sequence
from typing import Any

import click
from threefs_client import AsyncFileSystem

from threefs.errors import NotFound, ThreefsError
from threefs.rpc.methods import START_SCRUB
from threefs.wire import manager_pb2 as pb
from threefs.wire import storage_pb2
from threefs_cli import move_rows, output
from threefs_cli.cluster_selector import ClusterSelector, cluster_options
from threefs_cli.cluster_state import ClusterState, read_state

_CALL_TIMEOUT_S = 5.0


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
    table = output.table("node", "target", "now", "last pass ended", "passes", "damaged", "repaired", "not yet", "lost")
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


@scrub.command(
    epilog="""
\b
Examples:
  threefs scrub now --dry-run          which nodes would begin
  threefs scrub now                    on all nodes
  threefs scrub now 3
"""
)
@click.argument("nodes", type=click.IntRange(1), nargs=-1, metavar="[NODE]...")
@click.option("--dry-run", is_flag=True, help="Only say on which nodes a pass would begin.")
@cluster_options
def now(selector: ClusterSelector, nodes: tuple[int, ...], dry_run: bool) -> None:
    """Begin a pass over all chunks at once, on all storage nodes or on some. A pass that is under way goes on.

    It reads at the rate of the settings (`scrub_bytes_per_s`) and yields to clients; `threefs scrub status` shows it.
    """
    url = selector.url()
    rows = selector.run(lambda fs: _start(fs, url, nodes, dry_run))
    if selector.as_json:
        output.print_json({"nodes": rows, "dry_run": dry_run})
    else:
        begins = "a pass would begin" if dry_run else "a pass begins"
        for row in rows:
            said = begins if row["began"] else row["error"] or "a pass is under way already"
            click.echo(f"node {row['node_id']}: {said}")
    if any(row["error"] for row in rows):
        click.get_current_context().exit(1)


async def _start(fs: AsyncFileSystem, url: str, nodes: Sequence[int], dry_run: bool) -> list[dict[str, Any]]:
    """Raises NotFound for a node that the cluster does not have."""
    state = await read_state(fs, url)
    storage = {row.node.node_id: row for row in state.status.nodes if row.node.kind == pb.STORAGE}
    unknown = [node for node in nodes if node not in storage]
    if unknown:
        raise NotFound(f"the cluster has no storage node {unknown[0]}; `threefs node ls` lists them")
    named = [storage[node] for node in sorted(set(nodes) or storage)]
    return [would_start(row) if dry_run else await _start_one(fs, row.node) for row in named]


def would_start(found: pb.NodeStatus) -> dict[str, Any]:
    """What `_start_one` would answer, from what the node has reported last."""
    row = _not_begun(found.node)
    if found.node.address and not found.alive:
        row["error"] = "it does not run"
    row["began"] = row["error"] is None and not any(target.scrubbing for target in found.targets)
    return row


async def _start_one(fs: AsyncFileSystem, node: pb.Node) -> dict[str, Any]:
    row = _not_begun(node)
    if node.address:
        request = storage_pb2.StartScrubRequest()
        try:
            reply = await fs.context.peers.call(node.address, START_SCRUB, request, timeout_s=_CALL_TIMEOUT_S)
            row["began"] = reply.began
        except ThreefsError as error:
            row["error"] = str(error)
    return row


def _not_begun(node: pb.Node) -> dict[str, Any]:
    return {"node_id": node.node_id, "began": False, "error": None if node.address else "it was never started"}


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
