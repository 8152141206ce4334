"""`threefs disk replace`: an empty disk in the place of another one."""

import asyncio
from typing import Any

import click
from threefs_client import AsyncFileSystem

from threefs.env.clock import CLOCK
from threefs.errors import InvalidArgument, NotFound
from threefs.wire import manager_pb2 as pb
from threefs_cli import consent, disk_replacement, output, target_commands
from threefs_cli.cluster_selector import ClusterSelector, cluster_options
from threefs_cli.cluster_state import ClusterState, read_state, until_answered
from threefs_cli.disk_replacement import Disk, Phase, Progress


@click.group()
def disk() -> None:
    """Disks: each storage node has one."""


@disk.command(
    epilog="""
\b
Examples:
  threefs disk replace 2 --dry-run
  threefs disk replace 2              then stop the node, change its disk, start it
  threefs node drain 2                if no new disk comes: its targets move to other nodes
"""
)
@click.argument("node_id", type=click.IntRange(1), metavar="NODE")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--no-wait", is_flag=True, help="Do the next step only. The same command goes on later.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--interval", "interval_s", type=click.FloatRange(0.1), default=2.0, show_default=True, help="Seconds.")
@cluster_options
def replace(
    selector: ClusterSelector, node_id: int, yes: bool, no_wait: bool, dry_run: bool, interval_s: float
) -> None:
    """Take the disk of a storage node out of service, wait for an empty one in its place, and have that filled.

    Its chains go on with their other copies; it is refused if one of them would have fewer than a write needs. A disk
    that is dead is replaced in the same way. The command may be stopped and run again at any moment.
    """
    url = selector.url()
    state, found, chains = selector.run(lambda fs: _plan(fs, url, node_id))
    if found.phase.is_beginning and not (selector.as_json and (yes or dry_run)):
        for line in disk_replacement.plan_text(found, chains, state.nodes[node_id].node.address):
            click.echo(line, err=not dry_run)
    if dry_run:
        if selector.as_json:
            output.print_json(
                _describe(found, None) | {"dry_run": True, "chains": [*map(target_commands.describe, chains)]}
            )
        elif not found.phase.is_beginning:
            click.echo(f"the replacement is under way: {_told(found, None)}")
        return
    if not found.phase.is_beginning:
        _say_under_way(node_id)
    if found.phase.is_beginning and not yes:
        consent.ask("Go on?")
    selector.run(lambda fs: _replace(fs, url, found, interval_s, no_wait, selector.as_json))


async def _plan(fs: AsyncFileSystem, url: str, node_id: int) -> tuple[ClusterState, Disk, list[pb.HeldChain]]:
    """Raises NotFound, and InvalidArgument if a chain needs the disk."""
    state = await read_state(fs, url)
    found = disk_replacement.look(state, node_id)
    if not found.targets:
        raise NotFound(f"the cluster has no storage node {node_id} with targets; `threefs node ls` lists the nodes")
    if not found.phase.is_beginning:
        return state, found, []
    return state, found, await target_commands.hold(fs, url, found.targets, pb.HOLD_OFFLINE, dry_run=True)


async def _replace(fs: AsyncFileSystem, url: str, found: Disk, interval_s: float, no_wait: bool, as_json: bool) -> None:
    if found.phase.is_beginning:
        await _begin(fs, url, found)
    progress: Progress | None = None
    node_id, said = found.node_id, ""
    while True:
        found = await until_answered(lambda: _advance(fs, url, node_id))
        if found.phase in (Phase.FILLING, Phase.REFILLING) and progress is None:
            progress = Progress(CLOCK.monotonic(), found.copied_bytes)
        left = progress.remaining_s(found, CLOCK.monotonic()) if progress is not None else None
        line = _told(found, left)
        if no_wait and found.phase in (Phase.NEEDED, Phase.PARTIAL):
            raise InvalidArgument(line)
        if as_json:
            output.print_json_line(_describe(found, left))
        elif line != said:
            click.echo(line)
        said = line
        if found.phase is Phase.IN_SERVICE or no_wait:
            return
        await asyncio.sleep(interval_s)


async def _begin(fs: AsyncFileSystem, url: str, found: Disk) -> None:
    """Take the disk out of service, unless another command has since this one has looked."""
    now = disk_replacement.look(await read_state(fs, url), found.node_id)
    if not now.phase.is_beginning or now.is_new_since(found):
        _say_under_way(found.node_id)
        return
    taken: set[int] = set()
    while now.phase.is_beginning and not taken.issuperset(now.targets):  # a move may have added one meanwhile
        await target_commands.hold_until_out(fs, url, now.targets, pb.HOLD_OFFLINE)
        taken.update(now.targets)
        now = disk_replacement.look(await until_answered(lambda: read_state(fs, url)), found.node_id)


async def _advance(fs: AsyncFileSystem, url: str, node_id: int) -> Disk:
    """Has a disk filled that has arrived. Returns what was found before."""
    found = disk_replacement.look(await read_state(fs, url), node_id)
    if found.phase is Phase.ARRIVED:
        await target_commands.hold(fs, url, found.targets, pb.HOLD_NONE, dry_run=False)
    return found


def _say_under_way(node_id: int) -> None:
    click.echo(
        f"a replacement of the disk of node {node_id} is under way, and this command follows it; "
        f"`threefs disk replace {node_id} --dry-run` says how far it is",
        err=True,
    )


def _told(found: Disk, remaining_s: int | None) -> str:
    return _step(found, remaining_s) + (disk_replacement.lacking_text(found) if found.lacking_bytes else "")


def _step(found: Disk, remaining_s: int | None) -> str:
    if found.phase is Phase.FAILED:
        return f"the disk of node {found.node_id} has failed: run this command again to replace it"
    if found.phase is Phase.PARTIAL:
        return (
            f"some targets of node {found.node_id} are out of service, and others are in service: do not change its "
            "disk; this command, run again, takes out all of them, and "
            f"`threefs target online --node {found.node_id}` brings them back"
        )
    if found.phase is Phase.NEEDED:
        return (
            f"node {found.node_id} is still needed: let it run, and do not change its disk; it leaves its chains when "
            "enough of their other copies are in service (`threefs chain ls --degraded`), and "
            f"`threefs target online --node {found.node_id}` keeps it"
        )
    if found.phase is Phase.AWAITED:
        return (
            f"the disk of node {found.node_id} is out of service: stop its process, put an empty disk at its "
            "`data_dir`, and start it"
        )
    if found.phase is Phase.ARRIVED:
        return f"node {found.node_id} has an empty disk: it is filled now"
    if found.phase is Phase.UNFILLED:
        return (
            f"node {found.node_id} does not run, and its disk is not filled yet: start it, and it is filled to its "
            f"end; if this disk is dead, too: `threefs target offline --node {found.node_id}`, then this command again"
        )
    if found.phase is Phase.SILENT:
        return f"node {found.node_id} does not run any more: start it, and it is filled to its end"
    if found.phase is Phase.REFILLING:
        progress = disk_replacement.progress_text(found, remaining_s)
        return f"{disk_replacement.refilling_text(found.node_id)}; {progress}"
    if found.phase is Phase.FILLING:
        return disk_replacement.progress_text(found, remaining_s)
    return f"all {found.serving} targets of node {found.node_id} serve"


def _describe(found: Disk, remaining_s: int | None) -> dict[str, Any]:
    return {
        "node_id": found.node_id,
        "phase": found.phase.value,
        "targets": list(found.targets),
        "serving": found.serving,
        "copied_bytes": found.copied_bytes,
        "total_bytes": found.total_bytes,
        "lacking_bytes": found.lacking_bytes,
        "remaining_s": remaining_s,
    }
