"""`threefs table`: the chain tables of a cluster, and which of them new files take."""

import asyncio

import click
from threefs_client import AsyncFileSystem

from threefs.env.clock import CLOCK
from threefs.env.random import RANDOM
from threefs.errors import InvalidArgument
from threefs.rpc.methods import CREATE_TABLE, GET_STATUS, SET_DEFAULT_TABLE, SET_REPLICAS
from threefs.wire import manager_pb2 as pb
from threefs_cli import output
from threefs_cli.cluster_selector import ClusterSelector, cluster_options, managers
from threefs_cli.cluster_state import CALL_TIMEOUT_S, check_table, until_answered

_PLACING_S = 60.0  # a large table takes a while to place
_CHAINS_S = 30.0  # until the chains of a new table take writes
_POLL_S = 0.2


@click.group()
def table() -> None:
    """Chain tables: the chains that files are striped over. A file keeps the table that it was made with."""


@table.command(
    name="ls",
    epilog="""
\b
Examples:
  threefs table ls
  threefs table ls --json
""",
)
@cluster_options
def list_tables(selector: ClusterSelector) -> None:
    """List chain tables: their chains, how many copies they keep, and which one new files take."""
    url = selector.url()

    async def work(fs: AsyncFileSystem) -> pb.GetStatusReply:
        return await managers(fs, url).call(GET_STATUS, pb.GetStatusRequest(), timeout_s=CALL_TIMEOUT_S)

    status = selector.run(work)
    if selector.as_json:
        output.print_json(
            {
                "default_table": status.default_table,
                "tables": [
                    {
                        "table_id": one.table_id,
                        "chains": list(one.chains),
                        "replicas": one.replicas,
                        "min_replicas": one.min_replicas or 1,
                        "ready_chains": _ready(status, one),
                    }
                    for one in status.tables
                ],
            }
        )
        return
    shown = output.table("table", "chains", "copies", "a write needs", "chains that take writes", "new files")
    for one in status.tables:
        shown.add_row(
            str(one.table_id),
            str(len(one.chains)),
            str(one.replicas),
            str(one.min_replicas or 1),
            str(_ready(status, one)),
            "default" if one.table_id == status.default_table else "",
        )
    output.print_table(shown)


def _ready(status: pb.GetStatusReply, found: pb.ChainTable) -> int:
    """How many chains of the table take writes."""
    serving = {chain.chain_id: sum(member.state == pb.SERVING for member in chain.members) for chain in status.chains}
    return sum(serving[chain] >= (found.min_replicas or 1) for chain in found.chains)


@table.command(
    epilog="""
\b
Examples:
  threefs table create --dry-run
  threefs table create                                 as many copies and chains per disk as at first
  threefs table create --replicas 2 --targets-per-disk 4
"""
)
@click.option("--replicas", type=click.IntRange(1, 16), help="Copies of every chunk.  [default: as the cluster has]")
@click.option(
    "--targets-per-disk",
    type=click.IntRange(1, 99),
    help="Chains of the table that every disk takes part in.  [default: as the cluster was made with]",
)
@click.option(
    "--min-replicas",
    type=click.IntRange(1, 16),
    help="Copies that a chain must have to accept writes.  [default: half of all, rounded up]",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be made.")
@cluster_options
def create(
    selector: ClusterSelector,
    replicas: int | None,
    targets_per_disk: int | None,
    min_replicas: int | None,
    dry_run: bool,
) -> None:
    """Make a table of new chains on all disks that do not drain.

    No file moves: files are striped over it that are made after `threefs table set-default`, or in a directory that
    names it.
    """
    url = selector.url()
    request = pb.CreateTableRequest(
        replicas=replicas or 0,
        targets_per_disk=targets_per_disk or 0,
        min_replicas=min_replicas or 0,
        call_id=RANDOM.token(16),
        dry_run=dry_run,
    )

    async def work(fs: AsyncFileSystem) -> pb.CreateTableReply:
        reply = await managers(fs, url).call(CREATE_TABLE, request, timeout_s=_PLACING_S)
        if not dry_run:
            await _wait_for_chains(fs, url, reply.table)
        return reply

    reply = selector.run(work)
    made = reply.table
    if selector.as_json:
        output.print_json(
            {
                "table_id": made.table_id,
                "chains": list(made.chains),
                "replicas": made.replicas,
                "min_replicas": made.min_replicas,
                "targets": reply.targets,
                "dry_run": dry_run,
            }
        )
        return
    click.echo(
        f"table {made.table_id} {'would have' if dry_run else 'has'} "
        f"{output.count_of(len(made.chains), 'chain', 'chains')} of {made.replicas} copies: "
        f"{reply.targets} new targets"
    )
    if not dry_run:
        click.echo(f"`threefs table set-default {made.table_id}` lets new files take it")


async def _wait_for_chains(fs: AsyncFileSystem, url: str, made: pb.ChainTable) -> None:
    """Until the chains of a new table take writes, for a while at most. The table is made, also if no manager answers
    for a moment."""
    services, deadline = managers(fs, url), CLOCK.monotonic() + _CHAINS_S
    while CLOCK.monotonic() < deadline:
        status = await until_answered(
            lambda: services.call(GET_STATUS, pb.GetStatusRequest(), timeout_s=CALL_TIMEOUT_S)
        )
        if _ready(status, made) == len(made.chains):
            return
        await asyncio.sleep(_POLL_S)


@table.command(
    name="set-default",
    epilog="""
\b
Examples:
  threefs table set-default 2 --dry-run
  threefs table set-default 2                  for all directories that name no table
  threefs table set-default 2 /scratch         for new files below /scratch
""",
)
@click.argument("table_id", type=click.IntRange(1), metavar="TABLE")
@click.argument("path", required=False, metavar="[DIRECTORY]")
@click.option("--dry-run", is_flag=True, help="Only say which table new files would take instead of which.")
@cluster_options
def set_default(selector: ClusterSelector, table_id: int, path: str | None, dry_run: bool) -> None:
    """Let new files take a table: all of them, or those in one directory and in directories that are made in it.

    Files that exist stay where they are.
    """
    url = selector.url()

    async def work(fs: AsyncFileSystem) -> int | None:
        if path is None:
            request = pb.SetDefaultTableRequest(table_id=table_id, dry_run=dry_run)
            return (await managers(fs, url).call(SET_DEFAULT_TABLE, request, timeout_s=CALL_TIMEOUT_S)).table_before
        if dry_run:
            await _check_directory(fs, url, path, table_id)
        else:
            await fs.set_layout(path, table_id=table_id)
        return None

    before = selector.run(work)
    if selector.as_json:
        output.print_json({"table_id": table_id, "directory": path, "before": before, "dry_run": dry_run})
        return
    where = f"in {output.printable(path)} " if path else ""
    now = f"; now they take table {before}" if dry_run and before else ""
    click.echo(f"new files {where}{'would take' if dry_run else 'take'} table {table_id}{now}")


async def _check_directory(fs: AsyncFileSystem, url: str, path: str, table_id: int) -> None:
    """Raises NotFound, InvalidArgument if new files in it cannot take the table."""
    found = await fs.stat(path)
    if found.kind != "directory":
        raise InvalidArgument(f"{path} is a {found.kind}: only a directory names a table for new files")
    await check_table(fs, url, table_id)


@table.command(
    name="set-replicas",
    epilog="""
\b
Examples:
  threefs table set-replicas 1 3 --dry-run
  threefs table set-replicas 1 3         from one copy to three: also of the files that exist
""",
)
@click.argument("table_id", type=click.IntRange(1), metavar="TABLE")
@click.argument("replicas", type=click.IntRange(1, 16), metavar="COPIES")
@click.option("--dry-run", is_flag=True, help="Only say what would be added and removed.")
@cluster_options
def set_replicas(selector: ClusterSelector, table_id: int, replicas: int, dry_run: bool) -> None:
    """Give the chains of a table more copies, or fewer, while they serve.

    A copy is added on a disk that has none of the chain, or the one that is of least use is deleted. `threefs chain
    min-replicas` sets how many of them a write needs.
    """
    url = selector.url()

    async def work(fs: AsyncFileSystem) -> tuple[list[pb.Move], pb.GetStatusReply]:
        request = pb.SetReplicasRequest(table_id=table_id, replicas=replicas, dry_run=dry_run)
        services = managers(fs, url)
        moves = list((await services.call(SET_REPLICAS, request, timeout_s=CALL_TIMEOUT_S)).moves)
        return moves, await services.call(GET_STATUS, pb.GetStatusRequest(), timeout_s=CALL_TIMEOUT_S)

    moves, status = selector.run(work)
    added = sum(bool(move.added_target) for move in moves)
    removed = sum(not move.added_target for move in moves)
    lacking = chains_without_place(status, table_id, replicas) if not moves else 0
    if selector.as_json:
        row = {"table_id": table_id, "replicas": replicas, "dry_run": dry_run, "added": added, "removed": removed}
        output.print_json(row | {"chains_without_place": lacking})
    elif moves:
        would = "would get" if dry_run else "get", "would lose" if dry_run else "lose"
        parts = [f"{output.count_of(count, 'chain', 'chains')} {verb} a copy"
                 for count, verb in zip((added, removed), would, strict=True) if count]  # fmt: skip
        click.echo("; ".join(parts) + (": `threefs node ls` shows how far they are" if not dry_run else ""))
    elif lacking:
        verbs = ("chain lacks", "chains lack") if not dry_run else ("chain would lack", "chains would lack")
        click.echo(
            f"{output.count_of(lacking, *verbs)} a copy, and no node has room for it or can take it now: remove files "
            "or add nodes (`threefs health`)"
        )
    else:
        click.echo("nothing has to be added or removed now")


def chains_without_place(status: pb.GetStatusReply, table_id: int, replicas: int) -> int:
    """How many chains of the table have fewer copies than that, and none that is being added."""
    moving = {move.chain_id for move in status.moves}
    members = {chain.chain_id: len(chain.members) for chain in status.chains}
    chains = next((one.chains for one in status.tables if one.table_id == table_id), ())
    return sum(chain not in moving and members[chain] < replicas for chain in chains)
