"""Balances a placement: which disks share chains, and which of them are heads and tails. Pure and repeatable.

The cost is the sum over all pairs of disks of (chains in common)², which is least when all pairs share equally many. A
pair within one failure domain costs so much more that it stays only where no placement avoids it. Between placements
that are equally even, one is better whose pairs share fewer chains of other tables: a pair that shares more than others
costs a little more, less than any unevenness does.

The search is simulated annealing; a step exchanges two disks between two chains. It draws from a small generator of its
own, because a plan must give the same chains on every machine and with every version of Python.
"""

import itertools
import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence

from threefs.ids import NodeId

_MAX_EVALUATIONS = 900_000  # of exchanges: a second or two
_STEPS_PER_TARGET = 1500
#: In units of cost: at the end an exchange that costs 2 is accepted once in 10^11.
_START_TEMPERATURE, _END_TEMPERATURE = 1.0, 0.08
_GENTLE_TEMPERATURE = 0.25  # the start beside other tables: hotter, it takes ten times as long to part from their pairs
_SAME_DOMAIN = 1_000_000  # more than any exchange can save elsewhere
_MASK = (1 << 64) - 1

Groups = list[list[NodeId]]


def balance(
    groups: Sequence[Sequence[NodeId]], domain_of: Mapping[NodeId, str], others: Sequence[Sequence[NodeId]] = ()
) -> Groups:
    """The same placement with pairs as even as the search finds; disks are used as often, and chains keep their size.
    `others` are the chains of other tables.

    No disk is twice in a chain, and no more pairs of one domain share a chain than before.
    """
    search = _Search(groups, domain_of, others)
    search.keep()
    best_cost = search.cost
    scale = len(groups) * len(groups[0])
    steps = min(_MAX_EVALUATIONS // len(groups[0]), _STEPS_PER_TARGET * scale)
    hottest = _GENTLE_TEMPERATURE if others else _START_TEMPERATURE
    draws = _draws()
    for step in range(steps):
        if search.cost <= search.bound:
            break
        temperature = hottest * (_END_TEMPERATURE / hottest) ** (step / steps)
        if search.exchange(draws, temperature) and search.cost < best_cost:
            search.keep()
            best_cost = search.cost
    return search.kept()


def choose_evenly(groups: Sequence[Sequence[NodeId]]) -> list[NodeId]:
    """Choose one disk of each group so that no disk is chosen more often than necessary.

    If each group divided its choice equally among its disks, no disk would get more than `most / size`. So a choice of
    whole disks exists in which none gets more than that rounded up; augmenting paths find it.
    """
    most = max(Counter(node for group in groups for node in group).values())
    limit = math.ceil(most / len(groups[0]))
    chosen: dict[int, NodeId] = {}
    load: dict[NodeId, list[int]] = {node: [] for group in groups for node in group}
    for start in range(len(groups)):
        came_from: dict[NodeId, int] = {}
        queue = deque([start])
        free: NodeId | None = None
        while free is None:
            number = queue.popleft()
            for node in sorted(groups[number], key=lambda node: (len(load[node]), node)):
                if node not in came_from:
                    came_from[node] = number
                    queue.extend(load[node])
                    if len(load[node]) < limit:
                        free = node
                        break
        while free is not None:  # every group on the path changes to the disk that follows it
            number = came_from[free]
            before = chosen.get(number)
            chosen[number] = free
            load[free].append(number)
            if before is not None:
                load[before].remove(number)
            free = before
    return [chosen[number] for number in range(len(groups))]


class _Search:
    """The groups of disks, numbered from 0, and how many groups each pair of disks shares."""

    def __init__(
        self,
        groups: Sequence[Sequence[NodeId]],
        domain_of: Mapping[NodeId, str],
        others: Sequence[Sequence[NodeId]],
    ) -> None:
        self._nodes = sorted({node for group in groups for node in group})
        number = {node: index for index, node in enumerate(self._nodes)}
        self._groups = [[number[node] for node in group] for group in groups]
        self._kept = [list(group) for group in self._groups]
        self._changed: set[int] = set()  # groups that may differ from those kept
        self._domains = [domain_of[node] for node in self._nodes]
        self._shared: list[dict[int, int]] = [{} for _ in self._nodes]  # sparse: most pairs of many disks never meet
        self._close = self._close_pairs([[number[node] for node in other if node in number] for other in others])
        self.cost = 0
        for group in self._groups:
            for place, one in enumerate(group):
                self.cost += sum(self._meet(one, other) for other in group[:place])
        self.bound = self._least_cost()

    def keep(self) -> None:
        """Remember the groups as they are. Only those that have changed are copied: of many, few do."""
        for place in self._changed:
            self._kept[place] = list(self._groups[place])
        self._changed.clear()

    def kept(self) -> Groups:
        return [[self._nodes[number] for number in group] for group in self._kept]

    def _close_pairs(self, others: Sequence[Sequence[int]]) -> set[tuple[int, int]]:
        """The pairs of different domains that share more chains of other tables than some such pair does, in both
        orders."""
        pairs = (pair for other in others for pair in itertools.permutations(other, 2))
        shared = Counter((one, two) for one, two in pairs if self._domains[one] != self._domains[two])
        possible = len(self._nodes) ** 2 - sum(size**2 for size in Counter(self._domains).values())
        least = min(shared.values()) if shared and len(shared) == possible else 0
        return {pair for pair, count in shared.items() if count > least}

    def _least_cost(self) -> int:
        """A lower bound of the cost. At best the targets of a domain spread evenly over the groups, and all
        pairs of disks share equally many groups, but for a remainder."""
        sizes = Counter(self._domains)
        within = 0
        for targets in Counter(self._domains[node] for group in self._groups for node in group).values():
            each, rest = divmod(targets, len(self._groups))
            within += rest * math.comb(each + 1, 2) + (len(self._groups) - rest) * math.comb(each, 2)
        meetings = sum(math.comb(len(group), 2) for group in self._groups)
        pairs_within = sum(math.comb(size, 2) for size in sizes.values())
        pairs_across = math.comb(len(self._nodes), 2) - pairs_within
        across = _least_squares(meetings - within, pairs_across)
        return across + _least_squares(within, pairs_within) + _SAME_DOMAIN * within

    def exchange(self, draws: Iterator[int], temperature: float) -> bool:
        """Draw two disks of two groups, and exchange them if that costs little enough; returns whether it did."""
        drawn = next(draws)
        first = drawn % len(self._groups)
        drawn >>= 16
        second = drawn % len(self._groups)
        drawn >>= 16
        mine, theirs = self._groups[first], self._groups[second]
        here, there = drawn % len(mine), (drawn >> 8) % len(theirs)
        one, other = mine[here], theirs[there]
        if one in theirs or other in mine:
            return False  # a disk would be in a group twice, or nothing would change
        extra_cost = self._move(mine, here, other) + self._move(theirs, there, one)
        if extra_cost <= 0 or (drawn >> 16 & 0xFFFF) < 0x10000 * math.exp(-extra_cost / temperature):
            self.cost += extra_cost
            self._changed |= {first, second}
            return True
        self._move(mine, here, one)
        self._move(theirs, there, other)
        return False

    def _move(self, group: list[int], place: int, new: int) -> int:
        """Put a disk in the place of another; by how much the cost grows."""
        old = group[place]
        group[place] = new
        extra_cost = 0
        for mate in group:
            if mate != new:
                extra_cost += self._meet(new, mate) - self._part(old, mate)
        return extra_cost

    def _meet(self, one: int, other: int) -> int:
        """The two disks share one more group; returns the cost of that."""
        now = self._shared[one].get(other, 0) + 1
        self._shared[one][other] = self._shared[other][one] = now
        return 2 * now - 1 + self._extra_cost(one, other)

    def _part(self, one: int, other: int) -> int:
        """The two disks share one group less; returns what that saves."""
        left = self._shared[one][other] - 1
        self._shared[one][other] = self._shared[other][one] = left
        return 2 * left + 1 + self._extra_cost(one, other)

    def _extra_cost(self, one: int, other: int) -> int:
        """Of each group that the two disks share."""
        return _SAME_DOMAIN * (self._domains[one] == self._domains[other]) + ((one, other) in self._close)


def _least_squares(total: int, parts: int) -> int:
    """The least sum of squares of `parts` whole numbers that add up to `total`."""
    if not parts:
        return 0
    each, rest = divmod(total, parts)
    return rest * (each + 1) ** 2 + (parts - rest) * each**2


def _draws() -> Iterator[int]:
    """Numbers of 64 bits, the same sequence on every machine (splitmix64)."""
    state = 0
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        value = state
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
        yield value ^ (value >> 31)
