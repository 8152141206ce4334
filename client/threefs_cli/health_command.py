"""`threefs health`."""

import asyncio
from collections.abc import Iterator

import click
from threefs_client import AsyncFileSystem, addresses

from threefs.cluster.manager_client import FramedManagerClient
from threefs.errors import InvalidArgument, NotPrimary, ThreefsError
from threefs.health import cluster_health, verdict
from threefs.health.answers import Answers
from threefs.health.verdict import Reason, Severity
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.methods import GET_ROUTING, GET_STATUS, STATISTICS
from threefs.wire import manager_pb2 as pb
from threefs.wire import meta_pb2
from threefs_cli import output, reason_output
from threefs_cli.cluster_file import ETCD, META, POSTGRESQL, ClusterFile
from threefs_cli.cluster_selector import ClusterSelector, cluster_options, managers
from threefs_cli.configured_processes import leave_out

_CALL_TIMEOUT_S = 10.0
_PROBE_TIMEOUT_S = 2.0


@click.command(
    epilog="""
\b
Examples:
  threefs health
  threefs health --json --address threefs://10.0.0.1:7000

\b
Exit codes:
  0  OK
  1  WARN: somebody has to act, but all data can be read and written
  2  ERR: data cannot be read or written now, or is lost; or no manager answers
"""
)
@cluster_options
def health(selector: ClusterSelector) -> None:
    """Say in one word how a cluster is: OK, WARN or ERR, with each reason and what to do about it.

    The exit code is the severity: 0, 1 or 2. docs/health.md explains the reasons.
    """
    where = selector.address or str(selector.directory or "")
    try:
        where = selector.url()
        answers = selector.run(lambda fs: _ask(fs, where))
        found = [*cluster_health.reasons(answers), *stopped_processes(selector.local_cluster())]
        cluster_id = answers.status.cluster_id
    except InvalidArgument:
        raise  # the command line is wrong: exit code 2, too
    except (ThreefsError, OSError) as error:
        found, cluster_id = [no_answer(str(error)), *stopped_processes(_local_cluster(selector))], ""
    if selector.as_json:
        output.print_json({"address": where, "cluster_id": cluster_id, **reason_output.describe(found)})
    else:
        click.echo(f"{verdict.severity(found).name}" + (f"  cluster {cluster_id} at {where}" if cluster_id else ""))
        for line in reason_output.lines(found):
            click.echo(line)
    click.get_current_context().exit(int(verdict.severity(found)))


def no_answer(error: str) -> Reason:
    return Reason(
        "no_manager_answers",
        Severity.ERR,
        f"no manager has answered, so nothing is known of the cluster: {error}",
        "start a manager (`threefs up`, or systemctl start threefs-manager), or name the cluster by --address, --dir "
        "and --key-file",
    )


def _local_cluster(selector: ClusterSelector) -> ClusterFile | None:
    """Why it cannot be read is said already, if so."""
    try:
        return selector.local_cluster()
    except (ThreefsError, OSError):
        return None


def stopped_processes(local: ClusterFile | None) -> Iterator[Reason]:
    """Processes of a cluster of this machine of which the manager does not know that they are missing: it forgets a
    meta service that was silent for T, because such services come and go, and the engine has members of its own."""
    programs = local.of(META, ETCD, POSTGRESQL) if local is not None else []
    if names := [program.name for program in programs if not program.runs]:
        yield Reason(
            "process_stopped",
            Severity.WARN,
            f"{', '.join(names)} of this cluster of `threefs up` {'do' if len(names) > 1 else 'does'} not run",
            "`threefs up` starts what is missing; the log of a process says why it has ended",
        )


async def _ask(fs: AsyncFileSystem, url: str) -> Answers:
    peers = fs.context.peers
    primary = managers(fs, url)
    status = await primary.call(GET_STATUS, pb.GetStatusRequest(clients=True), timeout_s=_CALL_TIMEOUT_S)
    leave_out(status, fs.context.client)
    routing = (await primary.call(GET_ROUTING, pb.GetRoutingRequest(), timeout_s=_CALL_TIMEOUT_S)).routing
    metas = [row.node for row in status.nodes if row.node.kind == pb.META and row.alive]
    named = addresses.parse(url)
    meta_answers, manager_answers = await asyncio.gather(
        asyncio.gather(*(_meta_answer(peers, node.address) for node in metas)),
        asyncio.gather(*(_manager_answers(peers, address) for address in named)),
    )
    return Answers(
        status,
        routing,
        silent_managers=[address for address, answers in zip(named, manager_answers, strict=True) if not answers],
        silent_meta_nodes=[node.node_id for node, answer in zip(metas, meta_answers, strict=True) if answer is None],
        meta_disks={
            node.node_id: answer.store_disk
            for node, answer in zip(metas, meta_answers, strict=True)
            if answer is not None and answer.HasField("store_disk")
        },
    )


async def _manager_answers(peers: ConnectionPool, address: str) -> bool:
    try:
        await FramedManagerClient(peers, address).call(GET_STATUS, pb.GetStatusRequest(), timeout_s=_PROBE_TIMEOUT_S)
    except NotPrimary:
        return True
    except ThreefsError:
        return False
    return True


async def _meta_answer(peers: ConnectionPool, address: str) -> meta_pb2.StatisticsReply | None:
    try:
        return await peers.call(address, STATISTICS, meta_pb2.StatisticsRequest(), timeout_s=_PROBE_TIMEOUT_S)
    except ThreefsError:
        return None
