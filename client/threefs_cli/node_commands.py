"""`threefs node`, `threefs rebalance`: storage nodes that join and leave, and the targets that move for it."""

import contextlib
from collections import Counter
from dataclasses import dataclass
from typing import Any

import click
import uvloop
from threefs_client import AsyncFileSystem

from threefs.errors import PermissionDenied, Unavailable
from threefs.rpc.methods import ADD_NODES, GET_ROUTING, GET_STATUS, REBALANCE, REMOVE_NODE, SET_DRAINING
from threefs.wire import manager_pb2 as pb
from threefs_cli import output
from threefs_cli.cluster_selector import ClusterSelector, cluster_options, managers
from threefs_cli.cluster_state import CALL_TIMEOUT_S, until_answered
from threefs_cli.local_cluster import LocalCluster


@click.group()
def node() -> None:
    """Storage nodes: one process for one disk each. They join, drain and leave while the cluster runs."""


@dataclass(frozen=True, slots=True)
class NodeRow:
    """The row of one storage node in `threefs node ls`."""

    node_id: int
    domain: str
    address: str
    state: str  # "up", "silent", "draining", "drained", "new" (never started)
    targets: int
    coming: int  # targets that move to it
    going: int  # targets that move away from it
    used_bytes: int
    free_bytes: int | None  # None: it has no target, and so does not say


@node.command(
    name="ls",
    epilog="""
\b
Examples:
  threefs node ls
  watch threefs node ls               while targets move
""",
)
@cluster_options
def list_nodes(selector: ClusterSelector) -> None:
    """List storage nodes, their targets, and the targets that are moving."""
    url = selector.url()

    status, routing = selector.run(lambda fs: _state_of(fs, url))
    rows = node_rows(status, routing)
    if selector.as_json:
        output.print_json(
            {
                "nodes": [{name: getattr(row, name) for name in NodeRow.__slots__} for row in rows],
                "moves": [_move_json(move) for move in status.moves],
            }
        )
        return
    table = output.table("node", "domain", "address", "state", "targets", "coming", "going", "used", "free")
    for row in rows:
        table.add_row(
            str(row.node_id),
            row.domain,
            row.address or "-",
            row.state,
            str(row.targets),
            str(row.coming),
            str(row.going),
            output.size(row.used_bytes),
            "-" if row.free_bytes is None else output.size(row.free_bytes),
        )
    output.print_table(table)
    if status.moves:
        moving = "target moves or waits for its turn", "targets move or wait for their turn"
        click.echo(output.count_of(len(status.moves), *moving))


async def _state_of(fs: AsyncFileSystem, url: str) -> tuple[pb.GetStatusReply, pb.Routing]:
    services = managers(fs, url)
    status = await services.call(GET_STATUS, pb.GetStatusRequest(), timeout_s=CALL_TIMEOUT_S)
    reply = await services.call(GET_ROUTING, pb.GetRoutingRequest(), timeout_s=CALL_TIMEOUT_S)
    return status, reply.routing


def staying_targets(status: pb.GetStatusReply, routing: pb.Routing, node_id: int) -> tuple[int, int]:
    """How many targets of the node do not move to another one because none takes them, and how many because their
    chain does something else first, or does not serve."""
    node_of = {target.target_id: target.node_id for target in routing.targets}
    moving = {move.chain_id: move.removed_target for move in status.moves}
    placeless = waiting = 0
    for chain in status.chains:
        own = [member.target_id for member in chain.members if node_of.get(member.target_id) == node_id]
        staying = [target for target in own if moving.get(chain.chain_id) != target]
        if chain.chain_id in moving or not _can_move(chain):
            waiting += len(staying)
        else:
            placeless += len(staying)
    return placeless, waiting


def _can_move(chain: pb.Chain) -> bool:
    """Whether the chain serves, and no member of it leaves. The record of the move may be lost."""
    members = chain.members
    return any(one.state == pb.SERVING for one in members) and not any(one.leaving for one in members)


def node_rows(status: pb.GetStatusReply, routing: pb.Routing) -> list[NodeRow]:
    node_of = {target.target_id: target.node_id for target in routing.targets}
    members = {member.target_id for chain in status.chains for member in chain.members}
    targets = Counter(node_of[target] for target in members if target in node_of)  # else it was removed meanwhile
    coming = Counter(move.added_node for move in status.moves if move.added_target)
    going = Counter(node_of[move.removed_target] for move in status.moves if move.removed_target in node_of)
    rows = []
    for found in status.nodes:
        if found.node.kind != pb.STORAGE:
            continue
        node_id = found.node.node_id
        rows.append(
            NodeRow(
                node_id,
                found.node.domain,
                found.node.address,
                _state(found, targets[node_id]),
                targets[node_id],
                coming[node_id],
                going[node_id],
                sum(report.used_bytes for report in found.targets),
                max((report.free_bytes for report in found.targets), default=None),
            )
        )
    return sorted(rows, key=lambda row: row.node_id)


def _state(found: pb.NodeStatus, targets: int) -> str:
    if found.node.draining:
        return "draining" if targets else "drained"
    if not found.node.address:
        return "new"
    return "up" if found.alive else "silent"


def _move_json(move: pb.Move) -> dict[str, Any]:
    return {
        "chain_id": move.chain_id,
        "added_target": move.added_target or None,
        "added_node": move.added_node or None,
        "removed_target": move.removed_target or None,
    }


@node.command(
    epilog="""
\b
Examples:
  threefs node add 4 --domain rack-2 --dry-run
  threefs node add 4 --domain rack-2       then start threefs-storage with node_id = 4
  threefs node add 4 5 6
"""
)
@click.argument("nodes", type=click.IntRange(1), nargs=-1, required=True, metavar="NODE...")
@click.option("--domain", default="", help="What fails together with it.  [default: each node its own]")
@click.option("--dry-run", is_flag=True, help="Only say which nodes would be new.")
@cluster_options
def add(selector: ClusterSelector, nodes: tuple[int, ...], domain: str, dry_run: bool) -> None:
    """Let new storage nodes join the cluster.

    Start their processes, then run `threefs rebalance`: a new node has no targets until then. On a cluster of this
    machine `threefs up --storage N` does all of that.
    """
    url = selector.url()

    async def work(fs: AsyncFileSystem) -> list[int]:
        planned = [pb.PlannedNode(node_id=one, domain=domain) for one in nodes]
        request = pb.AddNodesRequest(storage=planned, dry_run=dry_run)
        return list((await managers(fs, url).call(ADD_NODES, request, timeout_s=CALL_TIMEOUT_S)).new_nodes)

    new = selector.run(work)
    if selector.as_json:
        output.print_json({"added": list(nodes), "new": new, "dry_run": dry_run})
    elif not dry_run:
        click.echo(f"node {', '.join(map(str, nodes))} may join; start its process, then run `threefs rebalance`")
    else:
        click.echo(f"node {', '.join(map(str, new))} would join" if new else "no node would be new")


@node.command(
    epilog="""
\b
Examples:
  threefs node drain 3 --dry-run
  threefs node drain 3                     then wait until `threefs node ls` says drained
"""
)
@click.argument("node_id", type=click.IntRange(1), metavar="NODE")
@click.option("--dry-run", is_flag=True, help="Only say what would move.")
@cluster_options
def drain(selector: ClusterSelector, node_id: int, dry_run: bool) -> None:
    """Move all targets of a node to other nodes, while it serves.

    Each target is copied first and leaves then, so no chain has fewer copies at any time. A node that is dead can be
    drained as well: its copies are made from the other ones.
    """
    _set_draining(selector, node_id, True, dry_run)


@node.command()
@click.argument("node_id", type=click.IntRange(1), metavar="NODE")
@click.option("--dry-run", is_flag=True, help="Only check that it can be done.")
@cluster_options
def undrain(selector: ClusterSelector, node_id: int, dry_run: bool) -> None:
    """Let a node keep its targets. Those that have begun to move go on; `threefs rebalance` gives it others."""
    _set_draining(selector, node_id, False, dry_run)


def _set_draining(selector: ClusterSelector, node_id: int, draining: bool, dry_run: bool) -> None:
    url = selector.url()

    async def work(fs: AsyncFileSystem) -> tuple[list[pb.Move], pb.GetStatusReply, pb.Routing]:
        request = pb.SetDrainingRequest(node_id=node_id, draining=draining, dry_run=dry_run)
        moves = list((await managers(fs, url).call(SET_DRAINING, request, timeout_s=CALL_TIMEOUT_S)).moves)
        return moves, *await _state_of(fs, url)

    moves, status, routing = selector.run(work)
    placeless, waiting = staying_targets(status, routing, node_id) if draining and not moves else (0, 0)
    if selector.as_json:
        row = {"node_id": node_id, "draining": draining, "dry_run": dry_run, "moves": _counts(moves)}
        output.print_json(row | {"targets_without_place": placeless, "targets_waiting": waiting})
    elif placeless or waiting:
        _echo_staying(placeless, waiting)
    elif draining:
        _echo_moves(moves, dry_run)
    else:
        click.echo(f"node {node_id} {'would keep' if dry_run else 'keeps'} its targets")


@node.command(
    epilog="""
\b
Examples:
  threefs node remove 3 --dry-run
  threefs node remove 3
"""
)
@click.argument("node_id", type=click.IntRange(1), metavar="NODE")
@click.option("--dry-run", is_flag=True, help="Only check that it has no targets.")
@cluster_options
def remove(selector: ClusterSelector, node_id: int, dry_run: bool) -> None:
    """Take a node without targets out of the cluster. Drain it first. Then its process can be stopped for good.

    In a cluster of this machine, its process is stopped, and `threefs up` does not start it again.
    """
    url = selector.url()

    async def work(fs: AsyncFileSystem) -> None:
        request = pb.RemoveNodeRequest(node_id=node_id, dry_run=dry_run)
        await managers(fs, url).call(REMOVE_NODE, request, timeout_s=CALL_TIMEOUT_S)

    selector.run(work)
    directory = selector.local_directory()
    if directory is not None and not dry_run:
        # `threefs up` is at work there, or it is another user's cluster: the next `up` does it
        with contextlib.suppress(Unavailable, PermissionDenied):
            uvloop.run(LocalCluster(directory).forget(node_id))
    if selector.as_json:
        output.print_json({"removed": node_id, "dry_run": dry_run})
    else:
        leaves = "would leave the cluster: it has no targets" if dry_run else "is no longer part of the cluster"
        click.echo(f"node {node_id} {leaves}")


@click.command(
    epilog="""
\b
Examples:
  threefs rebalance --dry-run
  threefs rebalance
"""
)
@click.option("--dry-run", is_flag=True, help="Only say what would move.")
@cluster_options
def rebalance(selector: ClusterSelector, dry_run: bool) -> None:
    """Move targets until all storage nodes have equally many of each table, rounded up or down, by as few moves as
    possible, while the cluster runs. So with several tables one node may have as many targets more than another."""
    url = selector.url()

    async def work(fs: AsyncFileSystem) -> tuple[list[pb.Move], int]:
        request = pb.RebalanceRequest(dry_run=dry_run)
        moves = list((await managers(fs, url).call(REBALANCE, request, timeout_s=CALL_TIMEOUT_S)).moves)
        return moves, 0 if moves else len((await until_answered(lambda: _state_of(fs, url)))[0].moves)

    moves, before = selector.run(work)
    if selector.as_json:
        output.print_json({"dry_run": dry_run, "moves": _counts(moves), "moves_before": before})
    elif before:
        first = output.count_of(before, "move of before is", "moves of before are")
        then = "would move" if dry_run else "moves"
        click.echo(f"nothing more {then} yet: {first} not done (`threefs moves`), and what is uneven then {then} later")
    else:
        _echo_moves(moves, dry_run)


def _echo_staying(placeless: int, waiting: int) -> None:
    if placeless:
        click.echo(
            f"{output.count_of(placeless, 'of its targets has', 'of its targets have')} no place now: no other node "
            "has room for one or can take it; remove files or add nodes (`threefs health`)"
        )
    if waiting:
        click.echo(
            f"{output.count_of(waiting, 'of its targets waits', 'of its targets wait')} until other moves of their "
            "chains are done, or their chains are served (`threefs moves`)"
        )


def _counts(moves: list[pb.Move]) -> list[dict[str, int]]:
    """How many targets come to each node."""
    return [{"to_node": one, "targets": count} for one, count in sorted(Counter(m.added_node for m in moves).items())]


def _echo_moves(moves: list[pb.Move], dry_run: bool) -> None:
    if not moves:
        click.echo("nothing has to move")
        return
    to = ", ".join(f"{row['targets']} to node {row['to_node']}" for row in _counts(moves))
    verbs = ("target would move", "targets would move") if dry_run else ("target moves now", "targets move now")
    click.echo(f"{output.count_of(len(moves), *verbs)}: {to}")
    if not dry_run:
        click.echo("`threefs node ls` shows how far they are")
