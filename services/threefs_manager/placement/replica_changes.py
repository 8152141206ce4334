"""Which targets chains gain or lose when their number of replicas changes. Pure.

A chain that lacks a copy is one that holds a target on a disk which is to become empty: so new targets are spread like
those of a disk that drains (`rebalance.py`). Of a chain that has a copy too many, the target goes that is of least use:
one that does not serve, one on a disk that drains, one that shares a failure domain; else one on a disk that has more
than its share. A chain gains or loses one at a time; what one plan leaves is left to the next one.
"""

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from threefs.ids import ChainId, NodeId

#: Holds the missing copy of each chain that lacks one.
LACKING = NodeId(0)


@dataclass(frozen=True, slots=True)
class Removal:
    """A chain loses its target on one disk."""

    chain_id: ChainId
    source: NodeId


def with_lacking(chains: Mapping[ChainId, Sequence[NodeId]], replicas: int) -> dict[ChainId, list[NodeId]]:
    """The chains, those with fewer members with one more, on no disk."""
    return {
        chain_id: [*members, LACKING] if len(members) < replicas else list(members)
        for chain_id, members in chains.items()
    }


def plan_removals(
    chains: Mapping[ChainId, Sequence[NodeId]],
    domain_of: Mapping[NodeId, str],
    replicas: int,
    *,
    draining: Collection[NodeId],
    broken: Mapping[ChainId, Collection[NodeId]],
) -> list[Removal]:
    """One removal for each chain that has more members than replicas. `broken`: the disks whose target of a chain does
    not serve."""
    excess = {chain_id: members for chain_id, members in chains.items() if len(members) > replicas}
    held = Counter(node for members in chains.values() for node in members)
    staying = sorted(node for node in held if node not in draining)
    left = sum(min(len(members), replicas) for members in chains.values())
    each, rest = divmod(left, max(1, len(staying)))
    emptiest = sorted(staying, key=lambda node: (held[node], node))
    goal = {node: each + (place >= len(emptiest) - rest) for place, node in enumerate(emptiest)}
    room = {node: max(0, held[node] - goal.get(node, 0)) for node in held}
    chosen: dict[ChainId, NodeId] = {}
    for chain_id, members in sorted(excess.items()):
        useless = _useless(members, domain_of, draining, broken.get(chain_id, ()))
        if useless is not None:
            chosen[chain_id] = useless
            room[useless] -= 1
    free = {chain_id: members for chain_id, members in excess.items() if chain_id not in chosen}
    taken: dict[NodeId, list[ChainId]] = {node: [] for node in held}
    for chain_id in sorted(free):
        _assign(chain_id, free, room, taken)
    chosen.update((chain_id, node) for node, chain_ids in taken.items() for chain_id in chain_ids)
    return [Removal(chain_id, chosen[chain_id]) for chain_id in sorted(chosen)]


def _useless(
    members: Sequence[NodeId], domain_of: Mapping[NodeId, str], draining: Collection[NodeId], broken: Collection[NodeId]
) -> NodeId | None:
    """The member that goes in any case, if there is one: the last of its kind, as the head is used most."""
    domains = Counter(domain_of[node] for node in members)
    together = {node for node in members if domains[domain_of[node]] > 1}
    for useless in (broken, draining, together):
        found = next((node for node in reversed(members) if node in useless), None)
        if found is not None:
            return found
    return None


def _assign(
    start: ChainId,
    chains: Mapping[ChainId, Sequence[NodeId]],
    room: Mapping[NodeId, int],
    taken: Mapping[NodeId, list[ChainId]],
) -> None:
    """Choose a member of a chain, of a disk that has more than its share: chains before may choose anew. If there is
    none, the disk that has lost the least beyond it."""
    came_from: dict[NodeId, ChainId] = {}
    queue = deque([start])
    free: NodeId | None = None
    while queue and free is None:
        chain_id = queue.popleft()
        for node in sorted(chains[chain_id], key=lambda node: (len(taken[node]) - room[node], node)):
            if node not in came_from:
                came_from[node] = chain_id
                queue.extend(taken[node])
                if len(taken[node]) < room[node]:
                    free = node
                    break
    if free is None:
        free = min(chains[start], key=lambda node: (len(taken[node]) - room[node], node))
        came_from[free] = start
    while True:  # every chain on the path changes to the disk that follows it
        chain_id = came_from[free]
        before = next((node for node, chain_ids in taken.items() if chain_id in chain_ids), None)
        taken[free].append(chain_id)
        if before is None:
            return
        taken[before].remove(chain_id)
        free = before
