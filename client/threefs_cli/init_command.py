"""`threefs init`: the plan of a cluster whose services are started by hand or by systemd."""

import re
from collections.abc import Iterable

import click
import uvloop
from threefs_client import addresses, keyring

from threefs.cluster.manager_client import FramedManagerClient, ManagerClient
from threefs.env.net import RealNet
from threefs.env.random import RANDOM
from threefs.errors import InvalidArgument
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.handshake import Identity
from threefs.rpc.methods import INIT
from threefs.wire import manager_pb2 as pb
from threefs_cli import output
from threefs_cli.cluster_selector import ClusterSelector, cluster_options

_NODES = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?(?:@(\S+))?")
_MAX_NODES = 10_000
_TIMEOUT_S = 30.0


@click.command(
    epilog="""
\b
Examples:
  threefs init --address threefs://10.0.0.1:7000 1@rack-a 2@rack-b 3@rack-c
  threefs init --address threefs://10.0.0.1:7000,10.0.0.2:7000 1-8@machine-1 9-16@machine-2 17-24@machine-3
"""
)
@cluster_options
@click.argument("nodes", nargs=-1, required=True, metavar="ID[-ID][@DOMAIN]...")
@click.option("--replicas", type=click.IntRange(1, 16), default=3, show_default=True, help="Copies of every chunk.")
@click.option(
    "--targets-per-disk",
    type=click.IntRange(1, 99),
    default=3,
    show_default=True,
    help="Chains that every disk takes part in. With more of them, more disks share the load of a dead one.",
)
@click.option(
    "--min-replicas",
    type=click.IntRange(1, 16),
    help="Copies that a chain must have to accept writes.  [default: half of all, rounded up]",
)
@click.option(
    "--lease",
    "lease_s",
    type=click.FloatRange(0.5, 600),
    help="Lease time T in seconds.  [default: the setting of the manager]",
)
def init(
    selector: ClusterSelector,
    nodes: tuple[str, ...],
    replicas: int,
    targets_per_disk: int,
    min_replicas: int | None,
    lease_s: float | None,
) -> None:
    """Give a new cluster its plan, once: its storage nodes, and how many copies of every chunk they keep.

    Each ID is the node_id of a storage process. Nodes of one DOMAIN (a machine, a rack) may fail together, so no chunk
    has two copies in one domain, if that is possible. Without @DOMAIN a node is a domain of its own. The same plan may
    be given again; a different one is refused. A cluster of `threefs up` needs no init.
    """
    request = pb.InitRequest(
        storage=planned(nodes),
        replicas=replicas,
        targets_per_disk=targets_per_disk,
        min_replicas=min_replicas or 0,
        lease_ms=round(lease_s * 1000) if lease_s else 0,
    )
    managers = addresses.parse(selector.url())
    key, _ = keyring.find(managers, key_file=selector.key_file())
    cluster_id = uvloop.run(_init(managers, key, request))
    if selector.as_json:
        output.print_json({"cluster_id": cluster_id, "storage": len(request.storage), "replicas": replicas})
    else:
        click.echo(f"cluster {cluster_id}: {len(request.storage)} storage nodes, {replicas} copies of every chunk")


def planned(words: Iterable[str]) -> list[pb.PlannedNode]:
    """The nodes that "3" or "1-8@rack-a" name. Raises InvalidArgument."""
    found: dict[int, pb.PlannedNode] = {}
    for word in words:
        match = _NODES.fullmatch(word)
        if match is None:
            raise InvalidArgument(f"{word!r} is not ID, ID-ID or either with @DOMAIN, like 3, 1-8 or 1-8@rack-a")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= _MAX_NODES:
            raise InvalidArgument(f"{word!r} is not a range of at most {_MAX_NODES} nodes")
        for node_id in range(first, last + 1):
            if node_id in found:
                raise InvalidArgument(f"node {node_id} is named twice")
            found[node_id] = pb.PlannedNode(node_id=node_id, domain=match[3] or "")
    return list(found.values())


async def _init(managers: tuple[str, ...], key: str, request: pb.InitRequest) -> str:
    peers = ConnectionPool(RealNet(), Identity("", RANDOM.token(16).hex(), key, "threefs"))
    try:
        reply = await ManagerClient([FramedManagerClient(peers, address) for address in managers]).call(
            INIT, request, timeout_s=_TIMEOUT_S
        )
        return reply.cluster_id
    finally:
        await peers.close()
