"""Which targets form which chain. Pure.

Every disk carries the same number of targets, and every chain takes its targets from different failure domains while
there are enough of them. Beyond that, two disks should share as few chains as possible, and all pairs equally many:
then the reads of a dead disk spread over all others instead of falling on one neighbour. A perfect solution is a
balanced incomplete block design; this finds one greedily where it is easy, and comes close where none exists.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from threefs.errors import InvalidArgument
from threefs.ids import ChainId, NodeId, TargetId
from threefs.routing import Chain, ChainMember, PublicState, Target

TARGETS_PER_NODE_LIMIT = 99


@dataclass(frozen=True, slots=True)
class Disk:
    """A storage process and the machine it is on."""

    node_id: NodeId
    domain: str


def target_id(node_id: int, number: int) -> TargetId:
    """The number-th target of a node, counted from 1."""
    return TargetId(node_id * (TARGETS_PER_NODE_LIMIT + 1) + number)


def check_plan(disks: Sequence[Disk], replicas: int, targets_per_disk: int) -> None:
    """Raises InvalidArgument, which says what is wrong with the plan."""
    if not 1 <= replicas <= 16:
        raise InvalidArgument(f"replicas must be 1 to 16, not {replicas}")
    if not 1 <= targets_per_disk <= TARGETS_PER_NODE_LIMIT:
        raise InvalidArgument(f"targets per disk must be 1 to {TARGETS_PER_NODE_LIMIT}, not {targets_per_disk}")
    if len({disk.node_id for disk in disks}) != len(disks):
        raise InvalidArgument("a node is in the plan twice")
    if any(not 1 <= disk.node_id < 1_000_000 for disk in disks):
        raise InvalidArgument("ids of storage nodes must be 1 to 999999")
    if len(disks) < replicas:
        raise InvalidArgument(f"{replicas} replicas need {replicas} storage nodes; the plan has {len(disks)}")
    if len(disks) * targets_per_disk % replicas:
        raise InvalidArgument(
            f"{len(disks)} disks with {targets_per_disk} targets each are {len(disks) * targets_per_disk} targets, "
            f"which {replicas} replicas do not divide; choose another number of targets per disk"
        )


def place(disks: Sequence[Disk], replicas: int, targets_per_disk: int) -> tuple[list[Chain], list[Target]]:
    """All chains, every target serving, and their targets. The same plan always gives the same answer."""
    check_plan(disks, replicas, targets_per_disk)
    free = {disk.node_id: targets_per_disk for disk in disks}
    shared: Counter[tuple[NodeId, NodeId]] = Counter()
    heads: Counter[NodeId] = Counter()
    tails: Counter[NodeId] = Counter()
    chains: list[Chain] = []
    targets: list[Target] = []
    count = len(disks) * targets_per_disk // replicas
    for number in range(1, count + 1):
        chosen = _choose(disks, replicas, free, shared, chains_left=count - number + 1)
        shared.update(_pair(*pair) for pair in combinations(chosen, 2))
        order = _in_turn(chosen, heads, tails)
        members = []
        for node in order:
            target = Target(target_id(node, targets_per_disk - free[node] + 1), node, ChainId(number))
            free[node] -= 1
            targets.append(target)
            members.append(ChainMember(target.target_id, PublicState.SERVING))
        chains.append(Chain(ChainId(number), 1, tuple(members)))
    return chains, targets


def _choose(
    disks: Sequence[Disk],
    replicas: int,
    free: dict[NodeId, int],
    shared: Counter[tuple[NodeId, NodeId]],
    chains_left: int,
) -> list[NodeId]:
    """The disks of the next chain. One that has a target for every chain left cannot wait; then come new domains, full
    stocks, and few chains in common."""
    chosen: list[NodeId] = []
    domains: Counter[str] = Counter()
    for _ in range(replicas):
        left = [disk for disk in disks if free[disk.node_id] and disk.node_id not in chosen]
        best = min(
            left,
            key=lambda disk: (
                free[disk.node_id] < chains_left,
                domains[disk.domain],
                -free[disk.node_id],
                sum(shared[_pair(disk.node_id, other)] for other in chosen),
                disk.node_id,
            ),
        )
        chosen.append(best.node_id)
        domains[best.domain] += 1
    return chosen


def _in_turn(chosen: Sequence[NodeId], heads: Counter[NodeId], tails: Counter[NodeId]) -> list[NodeId]:
    """The order in the chain: each disk is the head, and the tail, of its share of chains."""
    head = min(chosen, key=lambda node: (heads[node], node))
    rest = sorted((node for node in chosen if node != head), key=lambda node: (-tails[node], node))
    order = [head, *rest]
    heads[head] += 1
    tails[order[-1]] += 1
    return order


def _pair(one: NodeId, other: NodeId) -> tuple[NodeId, NodeId]:
    return (one, other) if one < other else (other, one)
