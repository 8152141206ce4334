"""`threefs chain accept-loss|accept-unheard`: a chain goes on without disks that are lost for good."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click
from threefs_client import AsyncFileSystem
from threefs_fsck import lost_files
from threefs_fsck.lost_files import LostFiles

from threefs.errors import InvalidArgument, NotFound, ThreefsError
from threefs.ids import ChainId, TableId, TargetId
from threefs.rpc.methods import ACCEPT_LOSS, ACCEPT_UNHEARD
from threefs.wire import manager_pb2 as pb
from threefs_cli import consent, output
from threefs_cli.cluster_selector import ClusterSelector, cluster_options, managers
from threefs_cli.cluster_state import CALL_TIMEOUT_S, ClusterState, read_state


@click.command(
    name="accept-unheard",
    epilog="""
\b
Examples:
  threefs chain accept-unheard 3 --dry-run
  threefs chain accept-unheard 3          node 3 will never come back
  threefs chain accept-unheard 3 4 --yes
""",
)
@click.argument("nodes", type=click.IntRange(1), nargs=-1, required=True, metavar="NODE...")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only say which chains have a copy there, and who is awaited still.")
@cluster_options
def accept_unheard(selector: ClusterSelector, nodes: tuple[int, ...], yes: bool, dry_run: bool) -> None:
    """Let a manager that was restored from a backup go on without the reports of these storage nodes.

    Such a manager serves nothing before every storage node has reported which replicas served last; `threefs status`
    shows the awaited ones. If their disks can be brought back, bring them back instead. Without them, a chain whose
    only current copy was on such a disk serves an older copy.
    """
    url = selector.url()
    state = selector.run(lambda fs: read_state(fs, url))
    touched, alone = chains_on(state, nodes)
    named = ", ".join(map(str, nodes))
    if not (selector.as_json and (yes or dry_run)):
        click.echo(
            f"{output.count_of(len(touched), 'chain has', 'chains have')} a copy on node {named}, "
            f"{len(alone)} of them no other one",
            err=not dry_run,
        )
    if not (yes or dry_run):
        consent.ask(
            f"The chains go on without the report of node {named}. Bytes that were written since "
            "the backup, and that only the disks of these nodes have, are lost for good. Go on?"
        )

    async def work(fs: AsyncFileSystem) -> list[int]:
        request = pb.AcceptUnheardRequest(nodes=nodes, dry_run=dry_run)
        return list((await managers(fs, url).call(ACCEPT_UNHEARD, request, timeout_s=CALL_TIMEOUT_S)).awaited_nodes)

    awaited = selector.run(work)
    if selector.as_json:
        output.print_json(
            {
                "given_up": list(nodes),
                "awaited": awaited,
                "chains": touched,
                "chains_without_another_copy": alone,
                "dry_run": dry_run,
            }
        )
    elif awaited:
        click.echo(f"{'it would still be' if dry_run else 'still'} awaited: node {', '.join(map(str, awaited))}")
    elif dry_run:
        click.echo("the chains would go on")
    else:
        click.echo("the chains go on; `threefs status` shows them")


def chains_on(state: ClusterState, nodes: Sequence[int]) -> tuple[list[int], list[int]]:
    """The chains that have a copy on these nodes, and those of them that have no other one."""
    of_nodes = {
        chain.chain_id: {state.node_of.get(member.target_id, 0) for member in chain.members}
        for chain in state.status.chains
    }
    touched = [chain_id for chain_id, found in of_nodes.items() if found & set(nodes)]
    return touched, [chain_id for chain_id in touched if of_nodes[chain_id] <= set(nodes)]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A target that could serve its chain alone."""

    target_id: int
    node_id: int
    address: str
    chunks: int
    own_store: bool  # the store that the cluster knows, not an empty one that was made in its place


@click.command(
    name="accept-loss",
    epilog="""
\b
Examples:
  threefs chain accept-loss 3 --dry-run
  threefs chain accept-loss 3             shows what other disks hold, and asks
  threefs chain accept-loss 3 --yes
  threefs chain accept-loss 3 --target 201
""",
)
@click.argument("chain_id", type=click.IntRange(1), metavar="CHAIN")
@click.option(
    "--target",
    "target_id",
    type=click.IntRange(1),
    help="Target whose copy is kept.  [default: the one with most chunks]",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only say which copy would be kept, and which files lose bytes.")
@cluster_options
def accept_loss(selector: ClusterSelector, chain_id: int, target_id: int | None, yes: bool, dry_run: bool) -> None:
    """Let a chain go on without the disks that served it last. Bytes that only they had are lost.

    Such a chain waits for these disks (`threefs status` shows them as lastsrv), and so do its reads and writes. If a
    disk can be brought back, bring it back instead. After this command, a disk that returns is overwritten. The
    command names files of which the kept copy lacks chunks: the first 20, and how many more there are.
    """
    url = selector.url()
    state = selector.run(lambda fs: read_state(fs, url))
    found = state.chain(chain_id)
    candidates = candidates_of(state, found)
    chosen = choose(candidates, target_id)
    lost, unknown = selector.run(lambda fs: _find_lost_files(fs, state, found, chosen))
    if not (selector.as_json and (yes or dry_run)):
        for candidate in candidates:
            click.echo(describe(candidate), err=not dry_run)
        for line in lost_lines(lost, unknown, chosen):
            click.echo(line, err=not dry_run)
    if not (yes or dry_run):
        consent.ask(
            f"Chain {chain_id} goes on with the {chosen.chunks} chunks of target {chosen.target_id}. Bytes that only "
            "the missing disks have are lost for good: files have older bytes, or zeros, in places. Go on?"
        )

    async def work(fs: AsyncFileSystem) -> pb.AcceptLossReply:
        request = pb.AcceptLossRequest(
            chain_id=chain_id, chain_version=found.version, target_id=chosen.target_id, dry_run=dry_run
        )
        return await managers(fs, url).call(ACCEPT_LOSS, request, timeout_s=CALL_TIMEOUT_S)

    version = selector.run(work).chain.version
    if selector.as_json:
        done = {"chain_id": chain_id, "version": version, "target_id": chosen.target_id, "dry_run": dry_run}
        output.print_json(done | lost_json(lost, unknown))
    elif dry_run:
        click.echo(f"chain {chain_id} would be served by target {chosen.target_id}, with what it has")
    else:
        click.echo(
            f"chain {chain_id} is served by target {chosen.target_id}. Keep what was said of files: where they have "
            "lost bytes, they read as zeros or older bytes from now on, and no command finds that afterwards"
        )


def choose(candidates: Sequence[Candidate], target_id: int | None) -> Candidate:
    """The target that the user named, else the one with most chunks, of those with their own store if there are any.

    Raises NotFound.
    """
    if target_id is not None:
        named = next((one for one in candidates if one.target_id == target_id), None)
        if named is None:
            raise NotFound(f"target {target_id} is not a target of this chain on a disk that is there now")
        return named
    if not candidates:
        raise NotFound("no target of this chain is on a disk that is there now; start its storage services first")
    return max(candidates, key=lambda one: (one.own_store, one.chunks))


def describe(candidate: Candidate) -> str:
    kind = "" if candidate.own_store else ", in a new store"
    where = f"node {candidate.node_id} at {candidate.address}"
    return f"target {candidate.target_id} on {where} has {candidate.chunks} chunks{kind}"


async def _find_lost_files(
    fs: AsyncFileSystem, state: ClusterState, found: pb.Chain, chosen: Candidate
) -> tuple[LostFiles, str]:
    """The files that lose bytes, and why they cannot be told, if so: that must not hold up an emergency."""
    tables = {TableId(one.table_id): [ChainId(chain) for chain in one.chains] for one in state.status.tables}
    chain, target = ChainId(found.chain_id), TargetId(chosen.target_id)
    try:
        link = fs.context
        return await lost_files.find(link.meta, link.peers, tables, chain, target, chosen.address), ""
    except ThreefsError as error:
        return LostFiles(), str(error)


def lost_lines(lost: LostFiles, unknown: str, chosen: Candidate) -> Iterator[str]:
    """What is lost, a sentence each."""
    if unknown:
        yield f"which files lose bytes cannot be told now: {unknown}"
        return
    for file in lost.named:
        chunks = output.count_of(file.chunks, "chunk", "chunks")
        yield f"{output.printable(file.path)} loses {file.lacking} of its {chunks} on the chain, or has holes there"
    if lost.more:
        yield f"and {output.count_of(lost.more, 'more file', 'more files')}"
    if not lost.named:
        yield f"target {chosen.target_id} has each chunk that files have on the chain"
    if lost.others:
        yield f"{output.count_of(lost.others, 'other file', 'other files')} may get older bytes in chunks that it has"


def lost_json(lost: LostFiles, unknown: str) -> dict[str, Any]:
    return {
        "files": None if unknown else [asdict(file) for file in lost.named],
        "more_files": None if unknown else lost.more,
        "other_files": None if unknown else lost.others,
        "files_unknown": unknown or None,
    }


def candidates_of(state: ClusterState, found: pb.Chain) -> list[Candidate]:
    """The targets of the chain whose processes live. Raises InvalidArgument."""
    if any(member.state == pb.SERVING for member in found.members):
        raise InvalidArgument(f"chain {found.chain_id} is served: nothing of it is lost")
    stores = {target.target_id: target.store_id for target in state.routing.targets}
    members = {member.target_id for member in found.members}
    return [
        Candidate(
            report.target_id, node.node.node_id, node.node.address, report.chunks,
            own_store=report.store_id == stores.get(report.target_id),
        )
        for node in state.status.nodes
        if node.alive
        for report in node.targets
        if report.target_id in members and report.local_state != pb.LOCAL_OFFLINE
    ]  # fmt: skip
