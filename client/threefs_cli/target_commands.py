"""`threefs target`: single disks out of service for a while, and back."""

import asyncio
from collections.abc import Sequence
from typing import Any

import click
from threefs_client import AsyncFileSystem

from threefs.env.clock import CLOCK
from threefs.errors import InvalidArgument, NotFound
from threefs.rpc.methods import HOLD_TARGETS
from threefs.wire import manager_pb2 as pb
from threefs_cli import consent, output
from threefs_cli.cluster_selector import ClusterSelector, cluster_options, managers
from threefs_cli.cluster_state import CALL_TIMEOUT_S, ClusterState, read_state, until_answered

_OUT_S = 60.0  # a target of an older release leaves when its lease has ended
_POLL_S = 0.1
_IN_WRITE_PATH = (pb.SERVING, pb.SYNCING)


@click.group()
def target() -> None:
    """Targets: the copies of chains, each a directory on one disk. `threefs chain ls` lists them."""


@target.command(
    epilog="""
\b
Examples:
  threefs target offline 201
  threefs target offline --node 2             all targets of its disk
  threefs target offline --node 2 --dry-run
"""
)
@click.argument("targets", type=click.IntRange(1), nargs=-1, metavar="[TARGET]...")
@click.option("--node", "nodes", type=click.IntRange(1), multiple=True, help="All targets of this storage node.")
@click.option("--force", is_flag=True, help="Also if chains take no writes, or serve nothing, until they are back.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only say what would become of their chains.")
@cluster_options
def offline(
    selector: ClusterSelector,
    targets: tuple[int, ...],
    nodes: tuple[int, ...],
    force: bool,
    yes: bool,
    dry_run: bool,
) -> None:
    """Take targets out of service for maintenance, and wait until no client uses them any more.

    Their chains go on with the other copies. It is refused if a chain would have fewer copies than a write needs. They
    stay out, also when their process or the manager starts again, until `threefs target online`. If their disks are to
    be away for good: `threefs node drain`.
    """
    url = selector.url()
    wanted = pb.HOLD_FORCED if force else pb.HOLD_OFFLINE
    chosen, chains = selector.run(lambda fs: _plan(fs, url, targets, nodes, wanted))
    if not (selector.as_json and (dry_run or yes)):
        for chain in chains:
            click.echo(effect(chain), err=not dry_run)
    stopped = [chain for chain in chains if chain.serving < chain.needed]
    if stopped and not (yes or dry_run):
        consent.ask(
            f"Reads or writes of {output.count_of(len(stopped), 'chain', 'chains')} wait until targets are back. No "
            "byte is lost by that. But should the other copies be lost before they return, what is on the targets that "
            "are out is all that is left. Go on?"
        )
    if not dry_run:
        selector.run(lambda fs: hold_until_out(fs, url, chosen, wanted))
    if selector.as_json:
        output.print_json(
            {"targets": chosen, "forced": force, "dry_run": dry_run, "chains": list(map(describe, chains))}
        )
    elif not dry_run:
        click.echo(f"{_shown(chosen)} out of service; `threefs target online` brings {_them(chosen)} back")


@target.command(
    epilog="""
\b
Examples:
  threefs target online 201
  threefs target online --node 2
"""
)
@click.argument("targets", type=click.IntRange(1), nargs=-1, metavar="[TARGET]...")
@click.option("--node", "nodes", type=click.IntRange(1), multiple=True, help="All targets of this storage node.")
@click.option("--dry-run", is_flag=True, help="Only say which targets would come back.")
@cluster_options
def online(selector: ClusterSelector, targets: tuple[int, ...], nodes: tuple[int, ...], dry_run: bool) -> None:
    """Bring targets back into service. What was written while they were out is copied to them first."""
    url = selector.url()

    async def work(fs: AsyncFileSystem) -> list[int]:
        state = await read_state(fs, url)
        back = [one for one in choose(state, targets, nodes) if one in state.held]
        if back and not dry_run:
            await hold(fs, url, back, pb.HOLD_NONE, dry_run=False)
        return back

    back = selector.run(work)
    if selector.as_json:
        output.print_json({"targets": back, "dry_run": dry_run})
    elif not back:
        click.echo("none of them was taken out of service")
    else:
        verb = "would return" if dry_run else "returns" if len(back) == 1 else "return"
        click.echo(f"{_names(back)} {verb}; `threefs chain ls --degraded` shows what is still being copied")


def choose(state: ClusterState, targets: Sequence[int], nodes: Sequence[int]) -> list[int]:
    """The named targets, and those of the named nodes. Raises NotFound, InvalidArgument."""
    if not (targets or nodes):
        raise InvalidArgument("name targets, or a node with --node; `threefs chain ls` lists them")
    members = {member.target_id for chain in state.status.chains for member in chain.members}
    unknown = [one for one in targets if one not in members]
    if unknown:
        raise NotFound(f"no chain has a target {unknown[0]}; `threefs chain ls` lists them")
    for node in nodes:
        if not any(state.node_of.get(one) == node for one in members):
            raise NotFound(f"node {node} has no targets; `threefs node ls` lists the nodes")
    return sorted({*targets, *(one for one in members if state.node_of.get(one) in nodes)})


def effect(chain: pb.HeldChain) -> str:
    """The effect on a chain, in one line."""
    copies = f"chain {chain.chain_id} has {chain.serving} of {chain.members} copies then"
    if not chain.serving:
        return f"{copies}: its READS AND WRITES WAIT until a target is back"
    if chain.serving < chain.needed:
        return f"{copies}, and a write needs {chain.needed}: its WRITES WAIT until a target is back"
    return f"{copies}, and a write needs {chain.needed}: it goes on"


def describe(chain: pb.HeldChain) -> dict[str, Any]:
    return {
        "chain_id": chain.chain_id,
        "serving": chain.serving,
        "copies": chain.members,
        "min_replicas": chain.needed,
        "takes_reads": chain.serving > 0,
        "takes_writes": chain.serving >= chain.needed,
    }


async def _plan(
    fs: AsyncFileSystem, url: str, targets: Sequence[int], nodes: Sequence[int], wanted: "pb.Hold"
) -> tuple[list[int], list[pb.HeldChain]]:
    chosen = choose(await read_state(fs, url), targets, nodes)
    return chosen, await hold(fs, url, chosen, wanted, dry_run=True)


async def hold(
    fs: AsyncFileSystem, url: str, targets: Sequence[int], wanted: "pb.Hold", *, dry_run: bool
) -> list[pb.HeldChain]:
    """The effect on the chains of these targets. Raises NotFound, InvalidArgument."""
    request = pb.HoldTargetsRequest(targets=targets, hold=wanted, dry_run=dry_run)
    return list((await managers(fs, url).call(HOLD_TARGETS, request, timeout_s=CALL_TIMEOUT_S)).chains)


async def hold_until_out(fs: AsyncFileSystem, url: str, targets: Sequence[int], wanted: "pb.Hold") -> None:
    """Raises InvalidArgument if they are not out in time: other targets of their chains have died."""
    await hold(fs, url, targets, wanted, dry_run=False)
    deadline = CLOCK.monotonic() + _OUT_S
    while inside := _inside(await until_answered(lambda: read_state(fs, url)), targets, wanted):
        if CLOCK.monotonic() >= deadline:
            raise InvalidArgument(
                f"target {inside[0]} is still needed: others of its chain have died since. It leaves when they are "
                "back, or with --force; `threefs target online` keeps it"
            )
        await asyncio.sleep(_POLL_S)


def _inside(state: ClusterState, targets: Sequence[int], wanted: "pb.Hold") -> list[int]:
    """Those that are still in the write path of their chain or, unless that is forced, its last copies."""
    within = _IN_WRITE_PATH if wanted == pb.HOLD_FORCED else (*_IN_WRITE_PATH, pb.LASTSRV)
    states = {member.target_id: member.state for chain in state.status.chains for member in chain.members}
    return [one for one in targets if states.get(one) in within]


def _names(targets: Sequence[int]) -> str:
    return f"target{'s' if len(targets) > 1 else ''} {', '.join(map(str, targets))}"


def _shown(targets: Sequence[int]) -> str:
    return f"{_names(targets)} {'are' if len(targets) > 1 else 'is'}"


def _them(targets: Sequence[int]) -> str:
    return "them" if len(targets) > 1 else "it"
