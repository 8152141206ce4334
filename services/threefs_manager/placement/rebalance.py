"""Which targets move when disks are added or drained. Pure: the same cluster always gives the same moves.

Every disk that stays carries its equal share of the targets of each table, rounded up or down. The number of moves is
the least with which that can be reached: each move takes a target from a disk that has too many, or that is draining,
and gives one to a disk that has too few. Of those, the moves are chosen that keep failure domains of a chain apart, and
that let pairs of disks share equally many chains.

A chain moves one target at a time, so what one plan leaves is left to the next one.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from threefs.ids import ChainId, NodeId


@dataclass(frozen=True, slots=True)
class Shift:
    """A chain gives its target on one disk to another disk."""

    chain_id: ChainId
    source: NodeId
    destination: NodeId


def shares(
    held: Mapping[NodeId, int],
    staying: Collection[NodeId],
    total: int,
    elsewhere: Mapping[NodeId, int],
    read_only: Collection[NodeId] = (),
) -> dict[NodeId, int]:
    """How many of `total` targets each disk that stays should carry: equally many. One more carry first those that take
    writes; of them those that have most now, so that few move; of those, the ones with the fewest targets of other
    tables."""
    each, rest = divmod(total, len(staying))
    order = sorted(staying, key=lambda node: (node in read_only, -held.get(node, 0), elsewhere.get(node, 0), node))
    return {node: each + (place < rest) for place, node in enumerate(order)}


def plan_shifts(
    chains: Mapping[ChainId, Sequence[NodeId]],
    domain_of: Mapping[NodeId, str],
    *,
    takers: Collection[NodeId],
    draining: Collection[NodeId],
    level: bool,
    elsewhere: Mapping[NodeId, int] | None = None,
    full: Collection[NodeId] = (),
    read_only: Collection[NodeId] = (),
    has_room: Callable[[ChainId, NodeId], bool] = lambda chain_id, node: True,
    free_places: Mapping[NodeId, int] | None = None,
) -> list[Shift]:
    """For the chains of one table: at most one shift per chain. `elsewhere` is what disks carry of other tables.

    `takers` are the disks that may get targets, also those that have none yet. With `level` they become equally full;
    without, only what is on draining disks moves. Disks that are `full` get nothing, and with `level` they lose what is
    more than their share. All other disks keep what they have. Of the `full` ones those that are `read_only` carry no
    target more than others: not those that have no room for a further one, or what moves would move back. `has_room`
    says whether a disk can take a target of that chain: chains are not all equally large. `free_places`: how many more
    targets a disk may carry at all, if that is bounded.
    """
    open_disks = set(takers) - set(draining) - set(full)
    if not open_disks:
        return []
    staying = sorted(open_disks | (set(full) - set(draining)))
    held = Counter(node for members in chains.values() for node in members)
    goal = shares(held, staying, sum(held[node] for node in {*staying, *draining}), elsewhere or {}, read_only)
    sources = {*draining, *(staying if level else ())}
    surplus = {node: held[node] - goal.get(node, 0) for node in sources if held[node] > goal.get(node, 0)}
    room = {node: goal[node] - held[node] for node in sorted(open_disks) if goal[node] > held[node]}
    most = {node: max(goal[node], held[node]) for node in sorted(open_disks)}
    places = {node: len(chains) if free_places is None else free_places.get(node, 0) for node in most}
    search = _Search(chains, domain_of, room, places, has_room)
    for source in sorted(surplus, key=lambda node: (node in goal, node)):  # those that drain first
        for _ in range(surplus[source]):
            if search.extend(source, apart=True) or search.extend(source, apart=False):
                continue
            if source not in draining or not search.overfill(source, most):
                break
    return search.shifts()


class _Search:
    """Augmenting paths: a disk in surplus takes a chain, which takes a disk with room; if there is none left, a shift
    that was chosen before is chosen anew."""

    def __init__(
        self,
        chains: Mapping[ChainId, Sequence[NodeId]],
        domain_of: Mapping[NodeId, str],
        room: Mapping[NodeId, int],
        places: Mapping[NodeId, int],
        has_room: Callable[[ChainId, NodeId], bool],
    ) -> None:
        self._chains = chains
        self._places = dict(places)
        self._has_room = has_room
        self._domain_of = domain_of
        self._room = dict(room)
        self._chosen: dict[ChainId, Shift] = {}
        self._of_source: dict[NodeId, list[ChainId]] = {}
        for chain_id, members in chains.items():
            for node in members:
                self._of_source.setdefault(node, []).append(chain_id)
        self._shared = Counter(
            (one, other) for members in chains.values() for one in members for other in members if one != other
        )

    def shifts(self) -> list[Shift]:
        return [self._chosen[chain_id] for chain_id in sorted(self._chosen)]

    def extend(self, source: NodeId, *, apart: bool) -> bool:
        """Find one more shift from this disk; `apart`: no chain may get two targets in one domain by it."""
        free = [chain_id for chain_id in self._of_source[source] if chain_id not in self._chosen]
        best = min(
            (
                (not self._is_close(chain_id, source), self._cost(chain_id, source, node), chain_id, node)
                for chain_id in free
                for node, room in self._room.items()
                if room > 0 and self._fits(chain_id, source, node, apart)
            ),
            default=None,
        )
        if best is not None:
            self._choose(Shift(best[2], source, best[3]))
            return True
        return self._augment(source, free, apart)

    def overfill(self, source: NodeId, most: Mapping[NodeId, int]) -> bool:
        """A disk that drains gives a target to one that has its share already: no other fits. `most` is what each disk
        carries without room left. What is uneven then, a later plan levels."""
        free = [chain_id for chain_id in self._of_source[source] if chain_id not in self._chosen]
        best = min(
            (
                (most[node] - self._room.get(node, 0), chain_id, node)
                for chain_id in free
                for node in most
                if self._fits(chain_id, source, node, apart=False)
            ),
            default=None,
        )
        if best is None:
            return False
        self._room.setdefault(best[2], 0)
        self._choose(Shift(best[1], source, best[2]))
        return True

    def _augment(self, source: NodeId, free: Sequence[ChainId], apart: bool) -> bool:
        """Let shifts that were chosen before take other disks, until one with room is reached."""
        came_from: dict[NodeId, tuple[ChainId, NodeId]] = {}  # a full disk: the chain that wants it, and its source
        queue: deque[NodeId] = deque()
        for chain_id in free:
            for node in self._room:
                if node not in came_from and self._fits(chain_id, source, node, apart):
                    came_from[node] = (chain_id, source)
                    queue.append(node)
        while queue:
            node = queue.popleft()
            if self._room[node] > 0:
                self._reroute(node, came_from)
                return True
            for shift in [s for s in self._chosen.values() if s.destination == node]:
                for other in self._room:
                    if other not in came_from and self._fits(shift.chain_id, shift.source, other, apart):
                        came_from[other] = (shift.chain_id, shift.source)
                        queue.append(other)
        return False

    def _reroute(self, node: NodeId, came_from: Mapping[NodeId, tuple[ChainId, NodeId]]) -> None:
        while True:
            chain_id, source = came_from[node]
            before = self._chosen.get(chain_id)
            if before is not None:
                self._withdraw(before)
            self._choose(Shift(chain_id, source, node))
            if before is None:
                return
            node = before.destination

    def _choose(self, shift: Shift) -> None:
        self._chosen[shift.chain_id] = shift
        self._room[shift.destination] -= 1
        self._places[shift.destination] -= 1
        for mate in self._chains[shift.chain_id]:
            if mate != shift.source:
                self._shared[shift.destination, mate] += 1
                self._shared[mate, shift.destination] += 1

    def _withdraw(self, shift: Shift) -> None:
        del self._chosen[shift.chain_id]
        self._room[shift.destination] += 1
        self._places[shift.destination] += 1
        for mate in self._chains[shift.chain_id]:
            if mate != shift.source:
                self._shared[shift.destination, mate] -= 1
                self._shared[mate, shift.destination] -= 1

    def _fits(self, chain_id: ChainId, source: NodeId, node: NodeId, apart: bool) -> bool:
        members = self._chains[chain_id]
        if node in members or self._places[node] <= 0 or not self._has_room(chain_id, node):
            return False
        domain = self._domain_of[node]
        return not apart or all(self._domain_of[mate] != domain for mate in members if mate != source)

    def _is_close(self, chain_id: ChainId, source: NodeId) -> bool:
        """Whether the chain has another target in the domain of that disk. Such a chain moves first: no other move may
        part the two."""
        domain = self._domain_of[source]
        return any(self._domain_of[mate] == domain for mate in self._chains[chain_id] if mate != source)

    def _cost(self, chain_id: ChainId, source: NodeId, node: NodeId) -> int:
        """How many chains the disk would share with the chain's other disks: the fewer, the more even."""
        return sum(self._shared[node, mate] for mate in self._chains[chain_id] if mate != source)
