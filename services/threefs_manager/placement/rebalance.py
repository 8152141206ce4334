"""Which targets move when disks are added or drained. Pure: the same cluster always gives the same moves.

Every disk that stays carries its equal share of the targets of each table, rounded up or down; only the disks of a
failure domain that is larger than others carry less, because a chain has one target in it. The number of moves is the
least with which that can be reached: each move takes a target from a disk that has too many, or that is draining, and
gives one to a disk that has too few. Of those, the moves are chosen that keep failure domains of a chain apart, and
that let pairs of disks share equally many chains.

To keep domains apart comes before equal shares: no target comes to a domain where its chain has another one, unless a
disk can become empty in no other way. And where disks are levelled, a chain that has two targets in one domain gives
one away, also to a disk that has its share.

A chain moves one target at a time, so what one plan leaves is left to the next one. Plans come to an end: a move that
levels disks brings no targets of a chain closer together, and one that makes disks uneven parts some.
"""

import enum
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


def shares_apart(
    held: Mapping[NodeId, int],
    staying: Collection[NodeId],
    total: int,
    elsewhere: Mapping[NodeId, int],
    read_only: Collection[NodeId],
    domain_of: Mapping[NodeId, str],
    most: Callable[[str], int],
) -> list[dict[NodeId, int]]:
    """The same, where the disks of a failure domain carry at most so many together: one target of each chain. If there
    are too few domains for that, all disks carry equally many. Disks are in one dict that carry equally many."""
    found: list[dict[NodeId, int]] = []
    left, uncrowded = total, list(staying)
    while uncrowded:
        sizes = Counter(domain_of[node] for node in uncrowded)
        crowded = {domain for domain in sizes if sizes[domain] * left > most(domain) * len(uncrowded)}
        if not crowded:
            return [*found, shares(held, uncrowded, left, elsewhere, read_only)]
        for domain in sorted(crowded):
            inside = [node for node in uncrowded if domain_of[node] == domain]
            found.append(shares(held, inside, most(domain), elsewhere, read_only))
            left -= most(domain)
        uncrowded = [node for node in uncrowded if domain_of[node] not in crowded]
    return [shares(held, staying, total, elsewhere, read_only)]


class _Nearness(enum.Enum):
    """Where a target may come with respect to the others of its chain."""

    APART = enum.auto()  # to a domain where the chain has no other one
    NO_CLOSER = enum.auto()  # to one where it has no more others than in the domain that it leaves
    ANY = enum.auto()


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
    counted = {*staying, *draining}
    kept = Counter(domain_of[node] for members in chains.values() for node in members if node not in counted)
    groups = shares_apart(
        held,
        staying,
        sum(held[node] for node in counted),
        elsewhere or {},
        read_only,
        domain_of,
        lambda domain: max(0, len(chains) - kept[domain]),
    )
    goal = {node: share for group in groups for node, share in group.items()}
    sources = {*draining, *(staying if level else ())}
    surplus = {node: held[node] - goal.get(node, 0) for node in sources if held[node] > goal.get(node, 0)}
    room = {node: goal[node] - held[node] for node in sorted(open_disks) if goal[node] > held[node]}
    beyond = {node: max(0, held[node] - goal[node]) for node in sorted(open_disks)}
    places = {node: len(chains) if free_places is None else free_places.get(node, 0) for node in beyond}
    search = _Search(chains, domain_of, room, beyond, places, has_room)
    stuck: set[NodeId] = set()
    for source in sorted(surplus, key=lambda node: (node in goal, node)):  # those that drain first
        left = search.relieve(source, surplus[source], drains=source in draining)
        if left and source in goal and source not in read_only:
            group = next(group for group in groups if source in group)
            _relieve_another(search, source, group, held, stuck)
    if level:
        search.part(staying)
    return search.shifts()


def _relieve_another(
    search: "_Search", source: NodeId, group: dict[NodeId, int], held: Mapping[NodeId, int], stuck: set[NodeId]
) -> None:
    """Of disks with equally many targets, some have a share of one more, before it is known which of them can give. One
    that cannot takes such a share from another one that can. Those that cannot either are not tried again."""
    for other, share in group.items():
        if other in stuck or not share == held[other] == group[source] + 1:
            continue
        if not search.relieve(other, 1, drains=False):
            group[source], group[other] = share, group[source]
            return
        stuck.add(other)


class _Search:
    """Augmenting paths: a disk in surplus takes a chain, which takes a disk with room; if there is none left, a shift
    that was chosen before is chosen anew."""

    def __init__(
        self,
        chains: Mapping[ChainId, Sequence[NodeId]],
        domain_of: Mapping[NodeId, str],
        room: Mapping[NodeId, int],
        beyond: Mapping[NodeId, int],
        places: Mapping[NodeId, int],
        has_room: Callable[[ChainId, NodeId], bool],
    ) -> None:
        self._chains = chains
        self._places = dict(places)
        self._has_room = has_room
        self._domain_of = domain_of
        self._room = dict(room)
        self._beyond = beyond  # what each disk that may get targets carries beyond its share
        self._chosen: dict[ChainId, Shift] = {}
        self._of_source: dict[NodeId, list[ChainId]] = {}
        for chain_id, members in chains.items():
            for node in members:
                self._of_source.setdefault(node, []).append(chain_id)
        self._in_domain = {
            chain_id: Counter(domain_of[node] for node in members) for chain_id, members in chains.items()
        }
        self._shared = Counter(
            (one, other) for members in chains.values() for one in members for other in members if one != other
        )

    def shifts(self) -> list[Shift]:
        return [self._chosen[chain_id] for chain_id in sorted(self._chosen)]

    def relieve(self, source: NodeId, surplus: int, *, drains: bool) -> int:
        """Find so many shifts from this disk; returns how many are lacking. One that drains becomes empty if that is
        possible at all; another one keeps what would come closer to its chain elsewhere, or to a disk that has its
        share."""
        for nearness in _Nearness:
            while surplus and (drains or nearness is not _Nearness.ANY) and self._extend(source, nearness):
                surplus -= 1
            while surplus and drains and self._overfill(source, nearness):
                surplus -= 1
        return surplus

    def part(self, sources: Collection[NodeId]) -> None:
        """Chains with two targets in one domain give one of them to a domain where they have none, if necessary to a
        disk that has its share already. What is uneven then, a later plan levels."""
        disks_in: dict[str, list[NodeId]] = {}
        for node in self._beyond:
            disks_in.setdefault(self._domain_of[node], []).append(node)
        for chain_id, members in self._chains.items():
            others = disks_in.keys() - {self._domain_of[node] for node in members}
            if chain_id in self._chosen or not others:
                continue
            best = min(
                (
                    (self._overload(node), -self._overload(source), source, node)
                    for source in members
                    if source in sources and self._near(chain_id, source, source)
                    for domain in others
                    for node in disks_in[domain]
                    if self._fits(chain_id, source, node, 0)
                ),
                default=None,
            )
            if best is not None:
                self._choose(Shift(chain_id, best[2], best[3]))

    def _extend(self, source: NodeId, nearness: _Nearness) -> bool:
        """Find one more shift from this disk to one with room."""
        free = self._free(source, nearness)
        best = min(
            (
                (not self._near(chain_id, source, source), self._cost(chain_id, source, node), chain_id, node)
                for chain_id, near in free.items()
                for node, room in self._room.items()
                if room > 0 and self._fits(chain_id, source, node, near)
            ),
            default=None,
        )
        if best is not None:
            self._choose(Shift(best[2], source, best[3]))
            return True
        return self._augment(source, free)

    def _overfill(self, source: NodeId, nearness: _Nearness) -> bool:
        """A disk that drains gives a target to one that has its share already: no other fits. What is uneven then, a
        later plan levels."""
        best = min(
            (
                (self._overload(node), chain_id, node)
                for chain_id, near in self._free(source, nearness).items()
                for node in self._beyond
                if self._fits(chain_id, source, node, near)
            ),
            default=None,
        )
        if best is None:
            return False
        self._choose(Shift(best[1], source, best[2]))
        return True

    def _overload(self, node: NodeId) -> int:
        """What the disk carries beyond its share with the shifts that are chosen; negative if it has room."""
        return self._beyond.get(node, 0) - self._room.get(node, 0)

    def _free(self, source: NodeId, nearness: _Nearness) -> dict[ChainId, int]:
        """The chains of a disk that no shift is chosen for, and how many other targets they may have in the domain that
        the target comes to."""
        free = [chain_id for chain_id in self._of_source[source] if chain_id not in self._chosen]
        match nearness:
            case _Nearness.APART:
                return dict.fromkeys(free, 0)
            case _Nearness.NO_CLOSER:
                return {chain_id: self._near(chain_id, source, source) for chain_id in free}
            case _Nearness.ANY:
                return {chain_id: len(self._chains[chain_id]) for chain_id in free}

    def _augment(self, source: NodeId, free: Mapping[ChainId, int]) -> bool:
        """Let shifts that were chosen before take other disks, no closer to their chains, until one with room is
        reached."""
        came_from: dict[NodeId, tuple[ChainId, NodeId]] = {}  # a full disk: the chain that wants it, and its source
        queue: deque[NodeId] = deque()
        for chain_id, near in free.items():
            for node in self._room:
                if node not in came_from and self._fits(chain_id, source, node, near):
                    came_from[node] = (chain_id, source)
                    queue.append(node)
        while queue:
            node = queue.popleft()
            if self._room[node] > 0:
                self._reroute(node, came_from)
                return True
            for shift in [s for s in self._chosen.values() if s.destination == node]:
                near = self._near(shift.chain_id, shift.source, node)
                for other in self._room:
                    if other not in came_from and self._fits(shift.chain_id, shift.source, other, near):
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
        self._room[shift.destination] = self._room.get(shift.destination, 0) - 1
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

    def _fits(self, chain_id: ChainId, source: NodeId, node: NodeId, near: int) -> bool:
        """Whether the target may come to that disk, if there are at most so many others of the chain in its domain."""
        if node in self._chains[chain_id] or self._places[node] <= 0 or not self._has_room(chain_id, node):
            return False
        return self._near(chain_id, source, node) <= near

    def _near(self, chain_id: ChainId, source: NodeId, node: NodeId) -> int:
        """How many targets the chain has in the domain of that disk, beside the one on the source. If it has some in
        the domain of the source itself, it moves first: no other move may part them."""
        domain = self._domain_of[node]
        return self._in_domain[chain_id][domain] - (self._domain_of[source] == domain)

    def _cost(self, chain_id: ChainId, source: NodeId, node: NodeId) -> int:
        """How many chains the disk would share with the chain's other disks: the fewer, the more even."""
        return sum(self._shared[node, mate] for mate in self._chains[chain_id] if mate != source)
