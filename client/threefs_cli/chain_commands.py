"""`threefs chain`: decisions of an administrator about the chains of a cluster."""

import asyncio

import click
from threefs_client import AsyncFileSystem

from threefs.env.clock import CLOCK
from threefs.errors import InvalidArgument, NotFound, Unavailable
from threefs.rpc.methods import HOLD_TARGETS, SET_MIN_REPLICAS
from threefs.wire import manager_pb2 as pb
from threefs_cli import chain_rows, loss_commands, output
from threefs_cli.cluster_selector import ClusterSelector, cluster_options, managers
from threefs_cli.cluster_state import CALL_TIMEOUT_S, read_state, until_answered

_ROTATE_S = 60.0  # the head of an older release leaves when its lease has ended
_POLL_S = 0.1


@click.group()
def chain() -> None:
    """Chains: their members, rules and emergencies. A chain is a row of disks that keep copies of the same chunks."""


@chain.command(
    name="ls",
    epilog="""
\b
Examples:
  threefs chain ls
  threefs chain ls --degraded          those that have fewer copies than they should
""",
)
@click.option("--degraded", is_flag=True, help="Only chains with fewer copies than their table keeps.")
@cluster_options
def list_chains(selector: ClusterSelector, degraded: bool) -> None:
    """List chains: which targets hold their copies, on which nodes, in which states. The head stands first."""
    url = selector.url()
    state = selector.run(lambda fs: read_state(fs, url))
    rows = [chain_rows.chain_row(state, one) for one in state.status.chains]
    shown = [row for row in rows if row["degraded"] or not degraded]
    if selector.as_json:
        output.print_json({"chains": shown})
        return
    table = output.table("chain", "table", "version", "copies", "takes writes", "targets (nodes)")
    for row in shown:
        members = (f"{m['target_id']} ({m['node_id']}) {m['state']}" for m in row["members"])
        table.add_row(
            str(row["chain_id"]),
            str(row["table_id"]),
            str(row["version"]),
            f"{row['serving']} of {row['copies']}" + (", moving" if row["moving"] else ""),
            "yes" if row["takes_writes"] else "no",
            ", ".join(members),
        )
    if shown:
        output.print_table(table)
    if degraded:
        click.echo(
            f"{len(shown)} of {output.count_of(len(rows), 'chain', 'chains')} have fewer copies than they should"
        )


@chain.command(
    epilog="""
\b
Examples:
  threefs chain show 1
  threefs chain show 1 --json
"""
)
@click.argument("chain_id", type=click.IntRange(1), metavar="CHAIN")
@cluster_options
def show(selector: ClusterSelector, chain_id: int) -> None:
    """Show one chain: its members from head to tail, and what their processes have reported."""
    url = selector.url()
    state = selector.run(lambda fs: read_state(fs, url))
    found = state.chain(chain_id)
    row = chain_rows.chain_row(state, found)
    row["members"] = members = [chain_rows.member_details(state, member) for member in found.members]
    if selector.as_json:
        output.print_json(row)
        return
    writes = "takes writes" if row["takes_writes"] else "takes no writes"
    click.echo(
        f"chain {chain_id} of table {row['table_id']}, version {row['version']}: {row['serving']} of {row['copies']} "
        f"copies serve, a write needs {row['min_replicas']}: it {writes}" + ("; it moves" if row["moving"] else "")
    )
    table = output.table("target", "node", "address", "chunks", "used", "state")
    for member in members:
        table.add_row(
            str(member["target_id"]),
            str(member["node_id"]),
            member["address"] or "-",
            str(member["chunks"]),
            output.size(member["used_bytes"]),
            chain_rows.member_text(member),
        )
    output.print_table(table)


@chain.command(
    epilog="""
\b
Examples:
  threefs chain rotate 1 --dry-run
  threefs chain rotate 1
"""
)
@click.argument("chain_id", type=click.IntRange(1), metavar="CHAIN")
@click.option("--dry-run", is_flag=True, help="Only say which target would be the head.")
@cluster_options
def rotate(selector: ClusterSelector, chain_id: int, dry_run: bool) -> None:
    """Make another serving target the head of a chain, which takes its writes.

    The head leaves, and returns behind the others as soon as it has what was written while it was out. Until then the
    chain has one copy less, so this is refused if a write needs that copy.
    """
    url = selector.url()
    old, new, version = selector.run(lambda fs: _rotate(fs, url, chain_id, dry_run))
    if selector.as_json:
        output.print_json(
            {"chain_id": chain_id, "old_head": old, "new_head": new, "version": version, "dry_run": dry_run}
        )
    elif dry_run:
        click.echo(
            f"target {new} would be the head of chain {chain_id}, and target {old} would return behind the others"
        )
    else:
        click.echo(f"target {new} is the head of chain {chain_id}; target {old} returns behind the others")


async def _rotate(fs: AsyncFileSystem, url: str, chain_id: int, dry_run: bool) -> tuple[int, int, int]:
    """The old head, the new one, and the version of the chain. Raises NotFound, InvalidArgument, Unavailable."""
    before = (await read_state(fs, url)).chain(chain_id)
    serving = [member.target_id for member in before.members if member.state == pb.SERVING]
    if not serving:
        raise InvalidArgument(f"chain {chain_id} is not served: it has no head")
    services, head = managers(fs, url), serving[0]

    async def ask(hold: "pb.Hold", *, dry_run: bool = False) -> None:
        request = pb.HoldTargetsRequest(targets=[head], hold=hold, dry_run=dry_run)
        await services.call(HOLD_TARGETS, request, timeout_s=CALL_TIMEOUT_S)

    await ask(pb.HOLD_ROTATE, dry_run=dry_run)
    if dry_run:
        return head, serving[1], before.version
    deadline = CLOCK.monotonic() + _ROTATE_S
    while CLOCK.monotonic() < deadline:
        found = (await until_answered(lambda: read_state(fs, url))).chain(chain_id)
        first = next((member.target_id for member in found.members if member.state == pb.SERVING), head)
        if first != head:
            return head, first, found.version
        await asyncio.sleep(_POLL_S)
    await ask(pb.HOLD_NONE)
    raise Unavailable(
        f"target {head} is still the head of chain {chain_id}: another target of the chain has died since; "
        f"`threefs chain show {chain_id}`"
    )


@chain.command(
    name="min-replicas",
    epilog="""
\b
Examples:
  threefs chain min-replicas 2 --dry-run
  threefs chain min-replicas 2
  threefs chain min-replicas 1      in an emergency: a single copy is enough for writes
""",
)
@click.argument("count", type=click.IntRange(1, 16))
@click.option("--table", "table_id", type=click.IntRange(1), default=1, show_default=True, help="Chain table.")
@click.option("--dry-run", is_flag=True, help="Only say how many chains would take writes.")
@cluster_options
def min_replicas(selector: ClusterSelector, count: int, table_id: int, dry_run: bool) -> None:
    """Set how many copies a chain must have to accept writes.

    A chain with fewer serving targets than COUNT still serves reads and brings its other targets up to date, but its
    writes wait. With COUNT 1, an acknowledged write may be on a single disk.
    """
    url = selector.url()
    if dry_run:
        ready, chains = selector.run(lambda fs: _would_take_writes(fs, url, count, table_id))
        if selector.as_json:
            row = {"table_id": table_id, "min_replicas": count, "dry_run": True}
            output.print_json(row | {"takes_writes": ready, "chains": chains})
        else:
            click.echo(f"{ready} of {output.count_of(chains, 'chain', 'chains')} of table {table_id} would take writes")
        return

    async def work(fs: AsyncFileSystem) -> None:
        request = pb.SetMinReplicasRequest(table_id=table_id, min_replicas=count)
        await managers(fs, url).call(SET_MIN_REPLICAS, request, timeout_s=CALL_TIMEOUT_S)

    selector.run(work)
    if selector.as_json:
        output.print_json({"table_id": table_id, "min_replicas": count})
    else:
        click.echo(f"writes to chains of table {table_id} need {output.count_of(count, 'copy', 'copies')} from now on")


async def _would_take_writes(fs: AsyncFileSystem, url: str, count: int, table_id: int) -> tuple[int, int]:
    """How many chains of the table would take writes, of how many. Raises NotFound, InvalidArgument."""
    state = await read_state(fs, url)
    table = next((one for one in state.status.tables if one.table_id == table_id), None)
    if table is None:
        raise NotFound(f"chain table {table_id} does not exist; `threefs table ls` lists the tables")
    if table.replicas and count > table.replicas:
        raise InvalidArgument(
            f"the chains of table {table_id} have {table.replicas} copies: choose at most {table.replicas}"
        )
    serving = [sum(m.state == pb.SERVING for m in state.chain(chain_id).members) for chain_id in table.chains]
    return sum(found >= count for found in serving), len(serving)


chain.add_command(loss_commands.accept_unheard)
chain.add_command(loss_commands.accept_loss)
