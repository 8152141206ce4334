"""Which targets form which chain in a new cluster, or a new table. Pure: the same plan always gives the same chains.

Every disk carries the same number of targets, and every chain takes its targets from different failure domains while
there are enough of them. Beyond that, all pairs of disks of different domains should share equally many chains. Then
the reads of a dead disk spread over all others instead of falling on a few neighbours. A perfect solution is a
balanced incomplete block design. `fill` makes a valid start, and `balance` searches from there.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from threefs.ids import ChainId, NodeId, TargetId
from threefs.routing import Chain, ChainMember, PublicState, Target
from threefs_manager.placement.balance import balance, choose_evenly
from threefs_manager.placement.plan import MAX_TARGETS_PER_DISK, Disk, check_plan


def target_id(node_id: int, number: int) -> TargetId:
    """The id of the target with this number, from 1, among those of the node."""
    return TargetId(node_id * (MAX_TARGETS_PER_DISK + 1) + number)


def place(disks: Sequence[Disk], replicas: int, targets_per_disk: int) -> tuple[list[Chain], list[Target]]:
    """All chains of a new cluster, with every target serving, and the targets. Raises what `check_plan` raises."""
    used: Counter[NodeId] = Counter()

    def next_target(node: NodeId) -> TargetId:
        used[node] += 1
        return target_id(node, used[node])

    groups = group_disks(disks, replicas, targets_per_disk)
    chains, targets = number_chains(groups, ChainId(1), next_target, PublicState.SERVING)
    assert all(used[disk.node_id] == targets_per_disk for disk in disks), "every disk has equally many targets"
    return chains, targets


def group_disks(
    disks: Sequence[Disk], replicas: int, targets_per_disk: int, others: Sequence[Sequence[NodeId]] = ()
) -> list[list[NodeId]]:
    """The disks of each chain, from head to tail. `others` are those of the chains of other tables.

    Raises what `check_plan` raises.
    """
    check_plan(disks, replicas, targets_per_disk)
    return search_groups(disks, replicas, targets_per_disk, others)


def search_groups(
    disks: Sequence[Disk], replicas: int, targets_per_disk: int, others: Sequence[Sequence[NodeId]] = ()
) -> list[list[NodeId]]:
    """The same for a plan that has been checked, or has more targets than one transaction stores."""
    domain_of = {disk.node_id: disk.domain for disk in disks}
    groups = order_members(balance(fill(disks, replicas, targets_per_disk), domain_of, others))
    assert all(len(set(group)) == replicas for group in groups), "a chain has its replicas on different disks"
    return groups


def number_chains(
    groups: Sequence[Sequence[NodeId]], first: ChainId, next_target: Callable[[NodeId], TargetId], state: PublicState
) -> tuple[list[Chain], list[Target]]:
    """A chain for each group, numbered from `first` on, with all members in that state, and the targets."""
    chains: list[Chain] = []
    targets: list[Target] = []
    for number, group in enumerate(groups, start=first):
        members = [Target(next_target(node), node, ChainId(number)) for node in group]
        targets += members
        chains.append(Chain(ChainId(number), 1, tuple(ChainMember(member.target_id, state) for member in members)))
    return chains, targets


def oversized_domains(disks: Sequence[Disk], replicas: int, targets_per_disk: int) -> list[str]:
    """Domains, by name, that are so large that some chain must have two targets in them."""
    chains = len(disks) * targets_per_disk // replicas
    sizes = Counter(disk.domain for disk in disks)
    return sorted(domain for domain, size in sizes.items() if size * targets_per_disk > chains)


def fill(disks: Sequence[Disk], replicas: int, targets_per_disk: int) -> list[list[NodeId]]:
    """Deal the targets to the chains in turn, domain by domain and disk by disk: a valid placement, though uneven.

    Targets of one disk go to consecutive chains. So no chain gets a disk twice, because no disk has more targets than
    there are chains (that follows from replicas <= disks). Nor does a chain get a domain twice, unless the domain has
    more targets than there are chains, which no placement could avoid.
    """
    count = len(disks) * targets_per_disk // replicas
    groups: list[list[NodeId]] = [[] for _ in range(count)]
    ordered = sorted(disks, key=lambda disk: (disk.domain, disk.node_id))
    for place_in_row in range(len(disks) * targets_per_disk):
        groups[place_in_row % count].append(ordered[place_in_row // targets_per_disk].node_id)
    return groups


def order_members(groups: Sequence[Sequence[NodeId]]) -> list[list[NodeId]]:
    """Order each group from head to tail, so that every disk is the head and the tail of its share of chains."""
    heads = choose_evenly(groups)
    rests = [sorted(set(group) - {head}) for group, head in zip(groups, heads, strict=True)]
    if not rests[0]:
        return [[head] for head in heads]
    tails = choose_evenly(rests)
    return [
        [head, *(node for node in rest if node != tail), tail]
        for head, rest, tail in zip(heads, rests, tails, strict=True)
    ]
