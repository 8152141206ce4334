"""The store of a manager whose cluster has thousands of disks: with the records that `init` makes, in one table that is
larger than `init` stores, and so in many transactions."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from threefs_manager.placement.chain_assignment import number_chains, search_groups, target_id
from threefs_manager.placement.plan import Disk

from threefs import routing as routing_module
from threefs.cluster.manager_records import CHAIN, CLUSTER_KEY, FIRST_META_NODE, NODE, TABLE, TARGET, record_key
from threefs.ids import ChainId, NodeId, TargetId
from threefs.kv import engine_url, records, retry
from threefs.kv.engine_api import Engine, Transaction
from threefs.routing import FIRST_TABLE, PublicState, Target
from threefs.wire import manager_pb2 as pb

REPLICAS = 3
STORE_ID = 1  # of every target
INCARNATION = 1  # of every process
_KEYS = 4000  # of a transaction
_FIRST_PORT = 10_000


async def make(data_dir: Path, disks: Sequence[Disk], targets_per_disk: int, cluster_id: str, lease_s: float) -> None:
    """A cluster whose processes have all registered, and whose targets all serve."""
    engine = await engine_url.open_engine(engine_url.url_of("", data_dir / "kv"))
    try:
        pairs = list(_records(disks, targets_per_disk, cluster_id, lease_s))
        for begin in range(0, len(pairs), _KEYS):
            await _write(engine, pairs[begin : begin + _KEYS])
    finally:
        await engine.close()


async def _write(engine: Engine, pairs: Sequence[tuple[bytes, bytes]]) -> None:
    async def write(tx: Transaction) -> None:
        for key, value in pairs:
            tx.set(key, value)

    await retry.run(engine, write)


def _records(
    disks: Sequence[Disk], targets_per_disk: int, cluster_id: str, lease_s: float
) -> Iterator[tuple[bytes, bytes]]:
    used: dict[NodeId, int] = {}

    def next_target(node: NodeId) -> TargetId:
        used[node] = used.get(node, 0) + 1
        return target_id(node, used[node])

    groups = search_groups(disks, REPLICAS, targets_per_disk)
    chains, targets = number_chains(groups, ChainId(1), next_target, PublicState.SERVING)
    for disk in disks:
        yield record_key(NODE, disk.node_id), records.encode(_node(disk))
    for chain in chains:
        yield record_key(CHAIN, chain.chain_id), records.encode(routing_module.chain_to_wire(chain))
    for target in targets:
        stored = Target(target.target_id, target.node_id, target.chain_id, STORE_ID)
        yield record_key(TARGET, target.target_id), records.encode(routing_module.target_to_wire(stored))
    table = pb.ChainTable(
        table_id=FIRST_TABLE, chains=[chain.chain_id for chain in chains], min_replicas=2, replicas=REPLICAS
    )
    yield record_key(TABLE, FIRST_TABLE), records.encode(table)
    cluster = pb.ClusterRecord(
        cluster_id=cluster_id,
        routing_version=1,
        replicas=REPLICAS,
        targets_per_disk=targets_per_disk,
        lease_ms=round(lease_s * 1000),
        next_meta_node=FIRST_META_NODE,
    )
    yield CLUSTER_KEY, records.encode(cluster)


def _node(disk: Disk) -> pb.Node:
    """Its address is one at which nobody listens: the manager only passes it on."""
    address = f"127.0.0.1:{_FIRST_PORT + disk.node_id}"
    return pb.Node(node_id=disk.node_id, kind=pb.STORAGE, domain=disk.domain, address=address, incarnation=INCARNATION)
