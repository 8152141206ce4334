"""`Init`: a cluster is made from its plan, once."""

import structlog

from threefs.cluster.manager_records import FIRST_META_NODE
from threefs.env.random import Random
from threefs.ids import NodeId
from threefs.routing import FIRST_TABLE, Chain, Node, NodeKind, Target
from threefs.wire import manager_pb2 as pb
from threefs_manager.placement import chain_assignment, write_minimum
from threefs_manager.placement import plan as plans
from threefs_manager.placement.plan import Disk
from threefs_manager.routing_publisher import RoutingPublisher
from threefs_manager.store.cluster_store import Store, Writer

_LOG = structlog.get_logger()


async def init(
    store: Store, publisher: RoutingPublisher, random: Random, lease_ms: int, request: pb.InitRequest
) -> str:
    """Make the cluster; returns its id. The same plan again succeeds, another one is AlreadyExists.

    `lease_ms` is T if the request names none. Raises InvalidArgument.
    """
    plan = plans.normalized(request)
    disks = [Disk(NodeId(node.node_id), node.domain) for node in plan.storage]
    plans.check_plan(disks, plan.replicas, plan.targets_per_disk, new_nodes=len(disks))
    min_replicas = request.min_replicas or write_minimum.default_minimum(plan.replicas)
    write_minimum.check_minimum(min_replicas, plan.replicas)
    fresh_id = random.token(16).hex()
    chains: list[Chain] = []
    targets: list[Target] = []
    if not publisher.routing.cluster_id:
        # Outside of the transaction, because placing a large plan takes longer than a transaction may.
        chains, targets = chain_assignment.place(disks, plan.replicas, plan.targets_per_disk)
        if oversized_domains := chain_assignment.oversized_domains(disks, plan.replicas, plan.targets_per_disk):
            _LOG.warning(
                "some chains have several targets in one failure domain, because the domain is too large",
                domains=oversized_domains,
            )

    async def write(writer: Writer) -> str:
        cluster = writer.cluster
        if cluster.cluster_id:
            await plans.check_same(writer, plan, request.min_replicas)
            return cluster.cluster_id
        cluster.cluster_id = fresh_id
        cluster.plan_digest = plans.digest(plan)
        cluster.replicas, cluster.targets_per_disk = plan.replicas, plan.targets_per_disk
        cluster.lease_ms = request.lease_ms or lease_ms
        cluster.next_meta_node = FIRST_META_NODE
        for disk in disks:
            writer.put_node(Node(disk.node_id, NodeKind.STORAGE, disk.domain, address="", incarnation=0))
        writer.put_chains(chains, targets)
        writer.put_table(
            pb.ChainTable(
                table_id=FIRST_TABLE,
                chains=[chain.chain_id for chain in chains],
                min_replicas=min_replicas,
                replicas=plan.replicas,
            )
        )
        return fresh_id

    cluster_id, routing = await store.change(write)
    publisher.publish(routing)
    return cluster_id
