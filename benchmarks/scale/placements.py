"""Which disks form which chain: by the solver of the cluster manager, or by chance."""

from collections.abc import Sequence
from random import Random

from threefs_manager.placement.chain_assignment import search_groups
from threefs_manager.placement.plan import Disk

from threefs.ids import NodeId

PLACEMENTS = ("solver", "random")
Chains = list[tuple[int, ...]]


def chains(placement: str, nodes: int, disks: int, replicas: int, targets_per_disk: int, random: Random) -> Chains:
    """Disks of each chain, numbered from 0: disk d is in node d // disks."""
    if placement == "solver":
        return _solved(nodes, disks, replicas, targets_per_disk)
    return _drawn(nodes, disks, replicas, targets_per_disk, random)


def _solved(nodes: int, disks: int, replicas: int, targets_per_disk: int) -> Chains:
    plan = [Disk(NodeId(disk + 1), f"node-{disk // disks}") for disk in range(nodes * disks)]
    return [tuple(int(node) - 1 for node in group) for group in search_groups(plan, replicas, targets_per_disk)]


def _drawn(nodes: int, disks: int, replicas: int, targets_per_disk: int, random: Random) -> Chains:
    """Every disk is in as many chains, no node twice in a chain; apart from that by chance."""
    dealt = [disk for disk in range(nodes * disks) for _ in range(targets_per_disk)]
    random.shuffle(dealt)
    for at in range(len(dealt)):
        while _node_again(dealt, at, replicas, disks):
            other = random.randrange(len(dealt))
            dealt[at], dealt[other] = dealt[other], dealt[at]
            if _node_again(dealt, other, replicas, disks):
                dealt[at], dealt[other] = dealt[other], dealt[at]
    return [tuple(dealt[at : at + replicas]) for at in range(0, len(dealt), replicas)]


def _node_again(dealt: Sequence[int], at: int, replicas: int, disks: int) -> bool:
    begin = at - at % replicas
    mates = [dealt[place] // disks for place in range(begin, begin + replicas) if place != at]
    return dealt[at] // disks in mates


def load_of_a_dead_node(made: Sequence[tuple[int, ...]], disks: int) -> float:
    """The reads of the disk that has most to do when node 0 is dead, in units of those that it has otherwise.

    Each chain has equally many reads, which its living disks share.
    """
    before: dict[int, float] = {}
    after: dict[int, float] = {}
    for chain in made:
        living = [disk for disk in chain if disk >= disks]
        for disk in chain:
            before[disk] = before.get(disk, 0.0) + 1 / len(chain)
        for disk in living:
            after[disk] = after.get(disk, 0.0) + 1 / len(living)
    return max(load / before[disk] for disk, load in after.items())
