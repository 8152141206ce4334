"""`threefs up`, `down`, `status`."""

import asyncio
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import uvloop
from threefs_client import AsyncFileSystem, addresses

from threefs.cluster.manager_client import FramedManagerClient
from threefs.errors import NotFound, ThreefsError
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.methods import STATISTICS
from threefs.wire import manager_pb2 as pb
from threefs.wire import meta_pb2
from threefs_cli import cluster_file, manager_rows, output, plan_change, stop_signals
from threefs_cli.cluster_file import ENGINES, ClusterFile, Program
from threefs_cli.cluster_selector import ClusterSelector, cluster_options
from threefs_cli.error_names import with_filename
from threefs_cli.local_cluster import LocalCluster
from threefs_cli.option_types import json_option

_STATISTICS_TIMEOUT_S = 2.0

directory_option = click.option(
    "--dir", "directory", type=click.Path(path_type=Path), help="Directory of the cluster and its data."
)


@click.command(
    epilog="""
\b
Examples:
  threefs up
  threefs up --dir /tmp/small --storage 1 --replicas 1
  threefs up --port 7000 --foreground
  threefs up --storage 5 --dry-run    which processes it would start
  threefs up --storage 5              two more disks for a cluster of three
  threefs up --dir /tmp/several --managers 3 --metas 2 --engine etcd
"""
)
@directory_option
@click.option("--storage", type=click.IntRange(1, 100), help="Storage processes.  [default: 3]")
@click.option("--replicas", type=click.IntRange(1, 16), help="Copies of every chunk.  [default: 3]")
@click.option(
    "--min-replicas",
    type=click.IntRange(1, 16),
    help="Copies that a chain must have to accept writes.  [default: half of all, rounded up]",
)
@click.option("--managers", type=click.IntRange(1, 9), help="Managers; several need --engine.  [default: 1]")
@click.option("--metas", type=click.IntRange(1, 100), help="Meta services; several need --engine.  [default: 1]")
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    help="Where managers and meta services keep their data, chosen at the first start.  [default: embedded]",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port for clients, at the first start; 0: any free port.",
)
@click.option(
    "--foreground/--detach", default=False, help="Stay until Ctrl-C, then stop the cluster.  [default: detach]"
)
@click.option("--dry-run", is_flag=True, help="Only say which processes would be started.")
@json_option
def up(
    directory: Path | None,
    storage: int | None,
    replicas: int | None,
    min_replicas: int | None,
    managers: int | None,
    metas: int | None,
    engine: str | None,
    port: int,
    foreground: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Start a cluster on this machine, or those of its processes that do not run.

    A cluster has a manager, a meta service and several storage processes. Started again in the same directory, it
    has the same data and the same addresses. With a larger --storage it gets new storage processes, and a share of the
    data moves to them while it runs.

    With --engine etcd (three members) or postgresql (one server) it has several managers and meta services, which
    take over from each other. The engine runs from the same directory.
    """
    cluster = LocalCluster(directory or cluster_file.default_directory())
    known = cluster.load()
    plan = plan_change.requested(
        known.plan if known else None,
        storage=storage,
        replicas=replicas,
        min_replicas=min_replicas,
        managers=managers,
        metas=metas,
        engine=engine,
    )
    if dry_run:
        with with_filename(cluster.directory):
            _show_planned(cluster.directory, known, cluster.planned(plan, port), as_json)
        return

    async def work() -> None:
        progress = (lambda line: None) if as_json else (lambda line: click.echo(line, err=True))
        if foreground:
            stop_signals.cancel_current_task()
        lacking: list[str] | None = [] if foreground else None
        state = await cluster.up(plan, port=port, progress=progress, lacking=lacking)
        if lacking is not None:
            await _run_in_foreground(cluster, state, lacking, as_json)
        else:
            _show_up(cluster, state, as_json)

    with with_filename(cluster.directory):
        try:
            uvloop.run(work())
        except asyncio.CancelledError:  # by a signal, which ends it as Ctrl-C does
            raise KeyboardInterrupt from None


def _show_planned(directory: Path, known: ClusterFile | None, state: ClusterFile, as_json: bool) -> None:
    """What `up` would do."""
    starts = [program.name for program in state.programs if not program.runs]
    before = {program.name for program in known.programs} if known is not None else set()
    adds = [program.name for program in state.of(cluster_file.STORAGE) if before and program.name not in before]
    if as_json:
        output.print_json({"directory": str(directory), "dry_run": True, "start": starts, "targets_move_to": adds})
        return
    click.echo(f"would start {', '.join(starts)}, in {directory}" if starts else f"everything runs in {directory}")
    if adds:
        click.echo(f"targets would move to {', '.join(adds)}")


def _show_up(cluster: LocalCluster, state: ClusterFile, as_json: bool) -> None:
    if as_json:
        running = [row for row in map(program_row, state.programs) if row["runs"]]
        rows = [{key: row[key] for key in ("name", "address", "pid")} for row in running]
        output.print_json({"address": state.address, "directory": str(cluster.directory), "programs": rows})
    else:
        click.echo(f"{state.address} is up, in {cluster.directory}")


async def _run_in_foreground(cluster: LocalCluster, state: ClusterFile, lacking: list[str], as_json: bool) -> None:
    stop = asyncio.Event()
    stop_signals.handle((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), stop.set)
    try:
        for line in lacking:
            click.ClickException(output.printable(line)).show()
        _show_up(cluster, state, as_json)
        await cluster.watch(lambda line: click.echo(line, err=True), stop.is_set)
    finally:
        await cluster.down()


@click.command()
@directory_option
@json_option
def down(directory: Path | None, as_json: bool) -> None:
    """Stop the cluster of this machine. Its data stays."""
    cluster = LocalCluster(directory or cluster_file.default_directory())
    stopped = uvloop.run(cluster.down())
    if as_json:
        output.print_json({"directory": str(cluster.directory), "stopped": stopped})
    else:
        click.echo(f"stopped {', '.join(stopped)}" if stopped else f"no cluster runs in {cluster.directory}")


@click.command(
    epilog="""
\b
Examples:
  threefs ps
  threefs ps --dir /tmp/several --json
"""
)
@directory_option
@json_option
def ps(directory: Path | None, as_json: bool) -> None:
    """List the processes of the cluster of this machine, those of its engine included. Exit code 1 when one does not
    run."""
    home = directory or cluster_file.default_directory()
    found = cluster_file.load(home)
    if found is None:
        raise NotFound(f"there is no cluster in {home}; `threefs up --dir {home}` starts one")
    rows = [program_row(program) for program in found.programs]
    if as_json:
        output.print_json({"directory": str(home.absolute()), "programs": rows})
    else:
        table = output.table("name", "program", "address", "pid", "state")
        for row in rows:
            state = "runs" if row["runs"] else "does not run"
            table.add_row(row["name"], row["program"], row["address"] or "-", str(row["pid"] or "-"), state)
        output.print_table(table)
    if not all(row["runs"] for row in rows):
        click.get_current_context().exit(1)


def program_row(program: Program) -> dict[str, Any]:
    return {
        "name": program.name,
        "program": program.module.replace("_", "-"),
        "address": program.addresses[0] if program.addresses else "",
        "pid": program.process.pid if program.process and program.runs else None,
        "runs": program.runs,
    }


@click.command()
@cluster_options
def status(selector: ClusterSelector) -> None:
    """Show the managers, nodes and chains of a cluster. Exit code 1 when one of these does not answer, or a process of
    a local cluster does not run. Managers are those that the address names."""
    url = selector.url()
    local = selector.local_cluster()

    async def work(fs: AsyncFileSystem) -> dict[str, Any]:
        peers = fs.context.peers
        callers = {address: FramedManagerClient(peers, address) for address in addresses.parse(url)}
        reply, rows = await manager_rows.ask(callers)
        found = describe(url, reply)
        found["managers"] = rows
        meta_nodes = [node for node in found["nodes"] if node["kind"] == "meta" and node["alive"]]
        statistics = await asyncio.gather(*(meta_statistics(peers, node["address"]) for node in meta_nodes))
        for node, one in zip(meta_nodes, statistics, strict=True):
            node["meta"] = one
        if local is not None:
            found["stopped"] = [program.name for program in local.programs if not program.runs]
        return found

    found = selector.run(work)
    if selector.as_json:
        output.print_json(found)
    else:
        print_status(found)
    if found["stopped"] or not all(process["alive"] for process in (*found["managers"], *found["nodes"])):
        click.get_current_context().exit(1)


def describe(url: str, reply: pb.GetStatusReply) -> dict[str, Any]:
    minimums = {chain: table.min_replicas or 1 for table in reply.tables for chain in table.chains}
    moving = {move.chain_id for move in reply.moves}
    return {
        "address": url,
        "cluster_id": reply.cluster_id,
        "manager_epoch": reply.manager_epoch,
        "routing_version": reply.routing_version,
        "lease_ms": reply.lease_ms,
        "awaited_nodes": list(reply.awaited_nodes),
        "failure": reply.failure,
        "store_disk": store_disk(reply),
        "link_removals": reply.link_removals,
        "moves": len(reply.moves),
        "stopped": [],
        "managers": [],
        "nodes": [_node(row) for row in reply.nodes],
        "tables": [
            {"table_id": table.table_id, "chains": len(table.chains), "min_replicas": table.min_replicas or 1}
            for table in reply.tables
        ],
        "chains": [
            {
                "chain_id": chain.chain_id,
                "version": chain.version,
                "serving": _serving(chain),
                "min_replicas": minimums.get(chain.chain_id, 1),
                "moving": chain.chain_id in moving,
                "takes_writes": _serving(chain) >= minimums.get(chain.chain_id, 1),
                "members": [
                    {
                        "target_id": member.target_id,
                        "state": pb.PublicState.Name(member.state).lower(),
                        "leaving": member.leaving,
                    }
                    for member in chain.members
                ],
            }
            for chain in reply.chains
        ],
    }


def _serving(chain: pb.Chain) -> int:
    return sum(member.state == pb.SERVING for member in chain.members)


def _node(row: pb.NodeStatus) -> dict[str, Any]:
    return {
        "node_id": row.node.node_id,
        "kind": pb.NodeKind.Name(row.node.kind).lower(),
        "address": row.node.address,
        "domain": row.node.domain,
        "draining": row.node.draining,
        "alive": row.alive,
        "heard": row.heard,
        "ended": row.ended,
        "silent_ms": row.silent_ms,
        "targets": len(row.targets),
        "chunks": sum(target.chunks for target in row.targets),
        "used_bytes": sum(target.used_bytes for target in row.targets),
        "resync": [
            {
                "target_id": target.target_id,
                "looked_at_chunks": target.synced_chunks,
                "chunks": target.chunks_to_sync,
            }
            for target in row.targets
            if target.chunks_to_sync
        ],
        "scrubbed_chunks": sum(target.scrubbed_chunks for target in row.targets),
        "damaged_chunks": sum(target.damaged_chunks for target in row.targets),
        "unrepaired_chunks": sum(target.unrepaired_chunks for target in row.targets),
        "scrubbed_bytes": sum(target.scrubbed_bytes for target in row.targets),
        "scrub_passes": min((target.scrub_passes for target in row.targets), default=0),
        "repaired_chunks": sum(target.repaired_chunks for target in row.targets),
        "unreachable": [
            {"node_id": peer.node_id, "unreachable_ms": peer.unreachable_ms} for peer in row.unreachable if row.alive
        ],
        "read_only": any(target.read_only for target in row.targets),
        "failures": sorted({target.failure for target in row.targets if target.failure}),
        # targets of one process share its disk
        "capacity_bytes": max((target.capacity_bytes for target in row.targets), default=0),
    }


def store_disk(reply: pb.GetStatusReply | meta_pb2.StatisticsReply) -> dict[str, Any] | None:
    """The disk of the embedded store of a service; None if its store is not embedded."""
    disk = reply.store_disk
    if not reply.HasField("store_disk"):
        return None
    return {
        "directory": disk.directory,
        "capacity_bytes": disk.capacity_bytes,
        "free_bytes": disk.free_bytes,
        "full": disk.full,
        "needed_bytes": disk.needed_bytes,
        "removals_only": disk.removals_only,
    }


async def meta_statistics(peers: ConnectionPool, address: str) -> dict[str, Any] | None:
    """Counters and rates of a meta service; None if it does not answer."""
    try:
        reply = await peers.call(address, STATISTICS, meta_pb2.StatisticsRequest(), timeout_s=_STATISTICS_TIMEOUT_S)
    except ThreefsError:
        return None
    return {
        "store_disk": store_disk(reply),
        "uptime_s": reply.uptime_ms / 1000,
        "names_per_s": reply.names_per_s,
        "transactions_per_s": reply.transactions_per_s,
        "again_per_s": reply.again_per_s,
        "transactions": reply.transactions,
        "again": dict(sorted(reply.again.items())),
        "removals_waiting": reply.removals_waiting,
        "leases_ending": reply.leases_ending,
        "charges_waiting": reply.charges_waiting,
        "calls": {
            one.method: {"calls": one.calls, "names": one.names, "refused": one.refused, "failed": one.failed}
            | {"seconds": one.seconds}
            for one in reply.calls
        },
    }


def print_status(found: dict[str, Any]) -> None:
    click.echo(f"cluster {found['cluster_id']} at {found['address']}, manager epoch {found['manager_epoch']}")
    for row in found["managers"]:
        click.echo(output.printable(manager_rows.line(row)))
    table = output.table("node", "kind", "address", "domain", "state", "chunks", "used", "disk")
    for node in found["nodes"]:
        table.add_row(
            str(node["node_id"]),
            node["kind"],
            node["address"] or "not started yet",
            node["domain"],
            state_of(node),
            str(node["chunks"]) if node["kind"] == "storage" else "",
            output.size(node["used_bytes"]) if node["kind"] == "storage" else "",
            _disk(node) if node["kind"] == "storage" else "",
        )
    output.print_table(table)
    for node in found["nodes"]:
        for line in _node_messages(node):
            click.echo(f"node {node['node_id']}: {line}")
    states = Counter(member["state"] for chain in found["chains"] for member in chain["members"])
    shown = ", ".join(f"{count} {state}" for state, count in states.items())
    settled = [chain for chain in found["chains"] if not chain["moving"]]  # others have a copy more for a while
    minimums = sorted({(chain["min_replicas"], len(chain["members"])) for chain in settled})
    needed = "".join(f"; a write needs {least} of {copies} copies" for least, copies in minimums)
    click.echo(f"{output.count_of(len(found['chains']), 'chain', 'chains')}; targets: {shown}{needed}")
    if found["stopped"]:
        click.echo(f"not running: {', '.join(found['stopped'])}; `threefs up` starts what is missing")
    if found["moves"]:
        click.echo(f"{output.count_of(found['moves'], 'chain moves', 'chains move')} to other disks: `threefs node ls`")
    for line in _full_store(found["store_disk"]):
        click.echo(f"the manager: {line}")
    if found["failure"]:
        click.echo(
            "the manager cannot change chains now, so dead targets stay in them, and writes to those chains wait: "
            f"{output.printable(found['failure'])}"
        )
    if found["awaited_nodes"]:
        click.echo(_awaited_message(found["awaited_nodes"]))
        return
    for line in _chain_warnings(found["chains"]):
        click.echo(line)


def _disk(node: dict[str, Any]) -> str:
    """The size of the disk of a storage node; without a target it does not say."""
    return output.size(node["capacity_bytes"]) if node["targets"] else "-"


def state_of(node: dict[str, Any]) -> str:
    """State of the process of a node, in words."""
    seconds = node["silent_ms"] / 1000
    if node["alive"]:
        return "alive"
    if node["ended"]:
        return f"ended, last heard {seconds:.1f} s ago"
    if node["heard"]:
        return f"silent for {seconds:.1f} s"
    return f"no heartbeat since the manager started {seconds:.1f} s ago"


def _awaited_message(nodes: list[int]) -> str:
    awaited = ", ".join(map(str, nodes))
    return (
        "the manager was restored from a backup, and nothing is served before all storage nodes have reported what "
        f"they know of their chains; awaited: {awaited}. Start them, and look into the log of one that runs: it has a "
        "store that it cannot open; if their disks are lost for good: `threefs chain "
        f"accept-unheard {' '.join(map(str, nodes))}`"
    )


def _chain_warnings(chains: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each chain that accepts no writes, or neither reads nor writes."""
    for chain in chains:
        copies = f"chain {chain['chain_id']} has {chain['serving']} of {len(chain['members'])} copies"
        if not chain["serving"]:
            last = ", ".join(str(m["target_id"]) for m in chain["members"] if m["state"] == "lastsrv")
            yield (
                f"{copies}: it waits for target {last} to return; until then its reads and writes wait. If that disk "
                f"is lost, see `threefs chain accept-loss {chain['chain_id']}`"
            )
        elif not chain["takes_writes"]:
            yield f"{copies}, and a write needs {chain['min_replicas']}: it serves reads, and its writes wait"


def _node_messages(node: dict[str, Any]) -> Iterator[str]:
    """Lines about a node that its row in the table does not show: repairs, damage, failures."""
    if "meta" in node:
        yield _meta_activity(node["meta"])
        yield from _full_store(node["meta"] and node["meta"].get("store_disk"))
    for resync in node["resync"]:
        yield (
            f"target {resync['target_id']} brings its successor up to date: "
            f"{resync['looked_at_chunks']} of {resync['chunks']} chunks"
        )
    if node["damaged_chunks"]:
        waiting = f", {node['unrepaired_chunks']} not repaired yet" if node["unrepaired_chunks"] else ""
        yield f"{node['damaged_chunks']} damaged chunks found, {node['repaired_chunks']} repaired{waiting}"
    if node["read_only"]:
        yield "its disk is full: it accepts no writes of clients"
    for peer in node["unreachable"]:
        yield f"it cannot reach node {peer['node_id']} for {peer['unreachable_ms'] / 1000:.0f} s"
    for failure in node["failures"]:
        yield output.printable(failure)


def _full_store(disk: dict[str, Any] | None) -> Iterator[str]:
    if disk is not None and disk["full"]:
        yield (
            f"the disk of its store {output.printable(disk['directory'])} is full: it refuses all changes until "
            f"{output.size(disk['needed_bytes'])} are free there"
        )
    elif disk is not None and disk["removals_only"]:
        yield (
            f"the disk of its store {output.printable(disk['directory'])} is nearly full "
            f"({output.size(disk['free_bytes'])} free): it takes only removals"
        )


def _meta_activity(statistics: dict[str, Any] | None) -> str:
    if statistics is None:
        return "it does not answer a request for its statistics"
    waiting = f"{statistics['removals_waiting'] or 'no'} removals wait"
    return (
        f"{statistics['names_per_s']:,.0f} names/s, {statistics['transactions_per_s']:,.0f} transactions/s, "
        f"{statistics['again_per_s']:,.1f}/s repeated; {waiting}"
    )
