"""The plan of a cluster: its storage nodes, the replicas of a chain, the targets of a disk, the minimum of replicas."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from threefs.cluster.manager_records import FIRST_META_NODE
from threefs.errors import AlreadyExists, InvalidArgument
from threefs.ids import NodeId
from threefs.kv.engine_api import MAX_TRANSACTION_KEYS
from threefs.routing import NodeKind
from threefs.wire import manager_pb2 as pb
from threefs_manager.store.cluster_store import Writer

MAX_REPLICAS = 16
MAX_TARGETS_PER_DISK = 99
_OTHER_RECORDS = 2  # that the transaction writes which stores a plan: of the table and of the cluster
MAX_NAME_CHARS = 255  # of a failure domain, and of an address
_FORMATTED_NODES = 5


@dataclass(frozen=True, slots=True)
class Disk:
    """A storage process and the machine it is on."""

    node_id: NodeId
    domain: str


def check_plan(disks: Sequence[Disk], replicas: int, targets_per_disk: int, *, new_nodes: int = 0) -> None:
    """Raises InvalidArgument if the plan cannot be placed, or not be stored with so many new nodes at once."""
    if not 1 <= replicas <= MAX_REPLICAS:
        raise InvalidArgument(f"replicas must be 1 to {MAX_REPLICAS}, not {replicas}")
    if not 1 <= targets_per_disk <= MAX_TARGETS_PER_DISK:
        raise InvalidArgument(f"targets per disk must be 1 to {MAX_TARGETS_PER_DISK}, not {targets_per_disk}")
    for node_id, times in Counter(disk.node_id for disk in disks).items():
        if not 1 <= node_id < FIRST_META_NODE:
            raise InvalidArgument(f"ids of storage nodes must be 1 to {FIRST_META_NODE - 1}, not {node_id}")
        if times > 1:
            raise InvalidArgument(f"node {node_id} is in the plan {times} times")
    if len(disks) < replicas:
        raise InvalidArgument(f"{replicas} replicas need {replicas} storage nodes; the plan has {len(disks)}")
    targets = len(disks) * targets_per_disk
    written = new_nodes + targets + targets // replicas + _OTHER_RECORDS
    if written > MAX_TRANSACTION_KEYS:
        raise InvalidArgument(
            f"the plan has {targets} targets, and with nodes and chains it makes {written} records; at most "
            f"{MAX_TRANSACTION_KEYS} can be stored at once: plan fewer targets per disk, and make more of them with "
            "`threefs table create`"
        )
    if targets % replicas:
        step = replicas // math.gcd(len(disks), replicas)
        raise InvalidArgument(
            f"{len(disks)} disks with {targets_per_disk} targets each make {targets} targets, which is no multiple of "
            f"{replicas} replicas; make targets per disk a multiple of {step}"
        )


def normalized(request: pb.InitRequest) -> pb.InitRequest:
    """The plan in the form that is compared: nodes by their ids, each in a failure domain, by default its own."""
    plan = pb.InitRequest(replicas=request.replicas, targets_per_disk=request.targets_per_disk)
    for node in sorted(request.storage, key=lambda node: node.node_id):
        if len(node.domain) > MAX_NAME_CHARS:
            raise InvalidArgument(
                f"the failure domain of node {node.node_id} has {len(node.domain)} characters; at most "
                f"{MAX_NAME_CHARS} are allowed"
            )
        plan.storage.add(node_id=node.node_id, domain=node.domain or f"node-{node.node_id}")
    return plan


def digest(plan: pb.InitRequest) -> bytes:
    """A digest of the plan that no version of a library changes."""
    nodes = [(node.node_id, node.domain) for node in plan.storage]
    text = json.dumps([plan.replicas, plan.targets_per_disk, nodes], separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).digest()


async def check_same(writer: Writer, plan: pb.InitRequest, min_replicas: int) -> None:
    """Raises AlreadyExists unless the cluster was made from this plan."""
    cluster = writer.cluster
    if cluster.plan_digest == digest(plan):
        table = await writer.table(1)
        if table is not None and min_replicas and min_replicas != (table.min_replicas or 1):
            raise AlreadyExists(
                f"the cluster {cluster.cluster_id} was made with a minimum of {table.min_replicas or 1} replicas, not "
                f"{min_replicas}; `threefs chain min-replicas {min_replicas}` changes it"
            )
        return
    existing = pb.InitRequest(replicas=cluster.replicas, targets_per_disk=cluster.targets_per_disk)
    for node in writer.routing.nodes.values():
        if node.kind is NodeKind.STORAGE:
            existing.storage.add(node_id=node.node_id, domain=node.domain)
    raise AlreadyExists(
        f"the cluster {cluster.cluster_id} was made from another plan: {_format_plan(existing)}, not "
        f"{_format_plan(plan)}"
    )


def _format_plan(plan: pb.InitRequest) -> str:
    nodes = ", ".join(f"{node.node_id} in {node.domain}" for node in plan.storage[:_FORMATTED_NODES])
    more = ", ..." if len(plan.storage) > _FORMATTED_NODES else ""
    return (
        f"{plan.replicas} replicas, {plan.targets_per_disk} targets per disk, {len(plan.storage)} storage nodes "
        f"({nodes}{more})"
    )
