"""Decides whether what clients saw of one chunk fits one order (I1).

The search of Wing and Gong with the memory of Lowe, in the order of time: a state is how far in time it came, the
content, and which of the operations under way have taken effect. Nothing takes effect before something that returned
cannot be explained without it, so the state that came furthest tells the shortest prefix that has no order.

What makes it fast, and why it is sound:
- A read takes effect as soon as the content fits: it changes nothing, so waiting cannot help.
- A state that used fewer open operations up is as good as one with the same content that used more.
- Every position at which any operation begins or ends cuts the chunk into segments. Each segment holds zeros or the
  slice of one write, so a write whose slice equals no result of a later read was seen by nobody. An open one is then
  as good as one that never happened.
- If every change replaces all of the content, one that nobody sees later may as well come right before the next one.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tests.harness.history import History, Kind, Operation, Outcome, apply, result_of, shown

DEFAULT_STEPS = 3_000_000
SHORT_STEPS = 50_000


class Undecided(Exception):
    """The budget of steps is used up: neither verdict is known."""


@dataclass(frozen=True, slots=True)
class Verdict:
    linearizable: bool
    order: tuple[Operation, ...]  # a witness; empty if there is none
    explanation: str  # why there is none
    steps: int


@dataclass(frozen=True, slots=True)
class Node:
    """A state of the search, before the event at `place`."""

    place: int
    content: int  # number of an interned content
    done: int  # bits of what is under way and has taken effect
    last: tuple[int, ...] = ()  # what took effect on the way here from `before`
    before: "Node | None" = None


@dataclass(slots=True)
class Contents:
    """Each content once, as a small number, and what changes and reads make of it."""

    known: list[bytes | None]
    numbers: dict[bytes | None, int]
    padded: bool  # whether nobody can tell zeros at the end from nothing
    changed: dict[tuple[int, int], int] = field(default_factory=dict)
    matched: dict[tuple[int, int], bool] = field(default_factory=dict)

    def after(self, content: int, name: int, operation: Operation) -> int:
        found = self.changed.get((content, name))
        if found is None:
            new = apply(self.known[content], operation)
            if self.padded:
                new = (new or b"").rstrip(b"\0")
            found = self.numbers.setdefault(new, len(self.known))
            if found == len(self.known):
                self.known.append(new)
            self.changed[content, name] = found
        return found

    def fits(self, content: int, name: int, operation: Operation) -> bool:
        found = self.matched.get((content, name))
        if found is None:
            found = self.matched[content, name] = result_of(operation, self.known[content]) == operation.result
        return found


class Timeline:
    """The events of a history in the order of time, and who is under way at each."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        counted = [one for one in operations if one.outcome is not Outcome.FAILED]
        seen = [one for one in counted if one.kind is not Kind.READ or one.outcome is Outcome.OK]
        self.operations = sorted(seen, key=lambda one: one.invoked)
        self.open = [one.outcome is Outcome.UNKNOWN for one in self.operations]
        self.is_read = [one.kind is Kind.READ for one in self.operations]
        events: list[tuple[float, int, int]] = []  # at the same time calls come first: then they may overlap
        for name, one in enumerate(self.operations):
            events.append((one.invoked, 0, name))
            if not self.open[name]:
                assert one.returned is not None
                events.append((one.returned, 1, name))
        events.sort()
        self.events = [(name, bool(returns)) for _, returns, name in events]
        self.times = [time for time, _, _ in events]
        self.bit = [0] * len(self.operations)
        self.return_place = [len(events)] * len(self.operations)
        self.reads: list[tuple[int, ...]] = []  # under way at each event
        self.changes: list[tuple[int, ...]] = []
        self.opened: list[int] = []  # open changes in the order of time
        self.opened_places: list[int] = []
        self._walk()

    def _walk(self) -> None:
        """Bits are given back when an operation returns, so masks stay small; open operations keep theirs."""
        free: list[int] = []
        bits = 0
        reads: dict[int, None] = {}
        changes: dict[int, None] = {}
        for place, (name, returns) in enumerate(self.events):
            self.reads.append(tuple(reads) if returns else ())
            self.changes.append(tuple(changes) if returns else ())
            group = reads if self.is_read[name] else changes
            if returns:
                self.return_place[name] = place
                del group[name]
                free.append(self.bit[name])
                continue
            if self.open[name] or not free:
                free.append(1 << bits)
                bits += 1
            self.bit[name] = free.pop()
            if self.open[name]:
                self.opened.append(name)
                self.opened_places.append(place)
            else:
                group[name] = None

    def open_changes(self, place: int) -> list[int]:
        return self.opened[: bisect_left(self.opened_places, place)]


class Sight:
    """Which reads may have seen which write, judged by segments."""

    def __init__(self, timeline: Timeline, content: bytes | None) -> None:
        self.operations = timeline.operations
        self.timeline = timeline
        cuts = {0, len(content or b"")}
        for one in self.operations:
            if one.kind is Kind.WRITE:
                cuts |= {one.offset, one.offset + len(one.payload)}
            elif one.kind is Kind.READ:
                cuts |= {one.offset, one.offset + len(one.result or b"")}
            else:
                cuts.add(one.length)
        self.cuts = sorted(cuts)
        changes = [one for one, read in zip(self.operations, timeline.is_read, strict=True) if not read]
        longest = max((max(one.length, one.offset + len(one.payload)) for one in changes), default=0)
        self.whole = all(
            one.kind is Kind.REMOVE
            or (one.kind is Kind.TRUNCATE and one.length == 0)
            or (one.kind is Kind.WRITE and one.offset == 0 and len(one.payload) == longest)
            for one in changes
        )
        self.last = self._last_of_whole() if self.whole else self._last_of_open()

    def _last_of_whole(self) -> list[int]:
        """Place of the last return of a read that fits what the change leaves."""
        places: dict[bytes | None, int] = {}
        last = []
        reads: dict[tuple[int, int, bool], tuple[Operation, dict[bytes | None, int]]] = {}
        for name, one in enumerate(self.operations):
            if one.kind is Kind.READ:
                _, results = reads.setdefault((one.offset, one.length, one.padded), (one, {}))
                results[one.result] = max(results.get(one.result, -1), self.timeline.return_place[name])
        for one in self.operations:
            content = apply(None, one)
            if content not in places:
                places[content] = max(
                    (results.get(result_of(read, content), -1) for read, results in reads.values()), default=-1
                )
            last.append(places[content])
        return last

    def _last_of_open(self) -> list[int]:
        """The same for open writes; any other change counts as seen until the end."""
        last = [len(self.timeline.events)] * len(self.operations)
        reads = [name for name, read in enumerate(self.timeline.is_read) if read]
        for name in self.timeline.opened:
            if self.operations[name].kind is Kind.WRITE:
                seen = (self.timeline.return_place[read] for read in reads if self.shows(read, name))
                last[name] = max(seen, default=-1)
        return last

    def shows(self, read: int, change: int) -> bool:
        """Whether the change may have left a trace in what was read: a segment of its bytes, or of the gap that
        it filled with zeros, or that there is a chunk at all."""
        seen, made = self.operations[read], self.operations[change]
        if made.kind is not Kind.WRITE or not made.payload or seen.result == b"":
            return True
        if seen.result is None:
            return False
        end = min(made.offset + len(made.payload), seen.offset + len(seen.result))
        first, last = bisect_left(self.cuts, seen.offset), bisect_right(self.cuts, end)
        for begin, stop in zip(self.cuts[first:last], self.cuts[first + 1 : last], strict=False):
            result = seen.result[begin - seen.offset : stop - seen.offset]
            if begin < made.offset:
                if not seen.padded and not any(result):
                    return True
            elif result == made.payload[begin - made.offset : stop - made.offset]:
                return True
        return False


class Search:
    """Depth first, the likely choices first; or those first that began first."""

    def __init__(
        self, operations: Iterable[Operation], content: bytes | None, budget: int, *, by_age: bool = False
    ) -> None:
        self.timeline = Timeline(operations)
        self.sight = Sight(self.timeline, content)
        reads = [one for one in self.timeline.operations if one.kind is Kind.READ]
        self.contents = Contents([content], {content: 0}, all(one.padded for one in reads))
        self.budget = budget
        self.by_age = by_age
        self.steps = 0
        self.open_bits = sum(self.timeline.bit[name] for name in self.timeline.opened)
        self.tried: dict[tuple[int, int, int], list[int]] = {}
        self.furthest: list[Node] = []

    def run(self) -> Verdict:
        stack = [Node(0, 0, 0)]
        while stack:
            node = self._advance(stack.pop())
            if node.place == len(self.timeline.events):
                return Verdict(True, self._order(node), "", self.steps)
            if self._known(node):
                continue
            self.steps += 1
            if self.steps > self.budget:
                raise Undecided(f"after {self.budget} steps of {len(self.timeline.operations)} operations")
            if not self.furthest or node.place > self.furthest[0].place:
                self.furthest = []
            if not self.furthest or node.place == self.furthest[0].place:
                self.furthest.append(node)
            stack.extend(reversed([self._take(node, name) for name in self._choices(node)]))
        return Verdict(False, (), self._explanation(), self.steps)

    def _known(self, node: Node) -> bool:
        """Whether a state at least as good was tried, or is on the way."""
        used = node.done & self.open_bits
        others = self.tried.setdefault((node.place, node.content, node.done & ~self.open_bits), [])
        if any(other & ~used == 0 for other in others):
            return True
        others.append(used)
        return False

    def _advance(self, node: Node) -> Node:
        """On to the next return that is not explained yet."""
        timeline, place, done = self.timeline, node.place, node.done
        fitting = []
        while place < len(timeline.events):
            name, returns = timeline.events[place]
            bit = timeline.bit[name]
            if returns:
                if not done & bit:
                    break
                done &= ~bit
            elif timeline.is_read[name] and self.contents.fits(node.content, name, timeline.operations[name]):
                done |= bit
                fitting.append(name)
            place += 1
        return Node(place, node.content, done, tuple(fitting), node)

    def _take(self, node: Node, name: int) -> Node:
        """One change takes effect, and with it every read that fits then."""
        timeline, done, place = self.timeline, node.done | self.timeline.bit[name], node.place
        order = [name]
        if self.sight.whole:
            for other in timeline.changes[place]:
                if other != name and not done & timeline.bit[other] and self.sight.last[other] < place:
                    done |= timeline.bit[other]
                    order.insert(0, other)
        content = self.contents.after(node.content, name, timeline.operations[name])
        for read in timeline.reads[place]:
            if not done & timeline.bit[read] and self.contents.fits(content, read, timeline.operations[read]):
                done |= timeline.bit[read]
                order.append(read)
        return Node(place, content, done, tuple(order), node)

    def _choices(self, node: Node) -> list[int]:
        """What may take effect next, the most likely first."""
        timeline, sight, place = self.timeline, self.sight, node.place
        stuck = timeline.events[place][0]
        waiting = [read for read in timeline.reads[place] if not node.done & timeline.bit[read]]
        sure = [name for name in timeline.changes[place] if not node.done & timeline.bit[name]]
        opened = [
            name
            for name in timeline.open_changes(place)
            if not node.done & timeline.bit[name] and sight.last[name] >= place
        ]
        choices = sure + [name for name in opened if self._helps(node, name, waiting, sure + opened)]
        return sorted(choices) if self.by_age else sorted(choices, key=lambda name: self._rank(node, name, stuck))

    def _helps(self, node: Node, name: int, waiting: Sequence[int], others: Sequence[int]) -> bool:
        """Whether an open change can be of use now rather than later."""
        operations = self.timeline.operations
        one = operations[name]
        content = self.contents.after(node.content, name, one)
        if content == node.content:
            return False
        if self.sight.whole:
            return any(self.contents.fits(content, read, operations[read]) for read in waiting)
        if one.kind is not Kind.WRITE or any(self.sight.shows(read, name) for read in waiting):
            return True
        return any(other != name and _touch(one, operations[other]) for other in others)

    def _rank(self, node: Node, name: int, stuck: int) -> tuple[int, int]:
        timeline = self.timeline
        if timeline.is_read[stuck]:
            content = self.contents.after(node.content, name, timeline.operations[name])
            if self.contents.fits(content, stuck, timeline.operations[stuck]):
                return (0, timeline.open[name])
            return (1 + 2 * (not self.sight.shows(stuck, name)) + timeline.open[name], timeline.return_place[name])
        return (0 if name == stuck else 1 + timeline.open[name], timeline.return_place[name])

    def _order(self, node: Node) -> tuple[Operation, ...]:
        names: list[int] = []
        step: Node | None = node
        while step is not None:
            names.extend(reversed(step.last))
            step = step.before
        return tuple(self.timeline.operations[name] for name in reversed(names))

    def _explanation(self) -> str:
        timeline = self.timeline
        place = self.furthest[0].place
        stuck = timeline.events[place][0]
        begun = len({name for name, _ in timeline.events[:place]})
        contents = dict.fromkeys(shown(self.contents.known[node.content]) for node in self.furthest)
        under_way = [*timeline.reads[place], *timeline.changes[place], *timeline.open_changes(place)]
        lines = [
            f"no order explains the first {begun} operations, up to the return at {timeline.times[place]:g} of",
            f"  {timeline.operations[stuck]}",
            "possible contents at that moment:",
            *(f"  {content}" for content in list(contents)[:16]),
            "under way at that moment:",
            *(f"  {timeline.operations[name]}" for name in under_way[:32]),
            "an order that comes as far:",
            *(f"  {one}" for one in self._order(self.furthest[0])[-12:]),
        ]
        return "\n".join(lines)


def _touch(one: Operation, other: Operation) -> bool:
    """Whether the order of two changes can matter. Writes that do not overlap make the same in both orders."""
    if not one.kind is other.kind is Kind.WRITE:
        return True
    return one.offset < other.offset + len(other.payload) and other.offset < one.offset + len(one.payload)


def check(operations: Iterable[Operation], content: bytes | None = None, budget: int = DEFAULT_STEPS) -> Verdict:
    """The verdict on the history of one chunk that began with `content`. Raises Undecided beyond the budget.

    A wrong choice early on may cost any number of steps. So it is tried shortly in both ways first: what leads one of
    them astray seldom does so to the other.
    """
    operations = list(operations)
    assert len({one.chunk for one in operations}) <= 1, "one chunk at a time"
    for by_age in (False, True):
        with suppress(Undecided):
            return Search(operations, content, min(budget, SHORT_STEPS), by_age=by_age).run()
    return Search(operations, content, budget).run()


def violations(history: History, budget: int = DEFAULT_STEPS) -> list[str]:
    """Of the chunks that no order explains, why not. All of them began without a chunk.

    Raises Undecided if the budget was too small for one of them and all others are explained.
    """
    found: list[str] = []
    undecided: Undecided | None = None
    for chunk, operations in history.chunks.items():
        try:
            verdict = check(operations, budget=budget)
        except Undecided as error:
            undecided = error
            continue
        if not verdict.linearizable:
            found.append(f"I1: of chunk {chunk} {verdict.explanation}")
    if undecided is not None and not found:
        raise undecided
    return found


def check_versions(operations: Iterable[Operation]) -> list[str]:
    """Breaches of what replies told: a version has one content and one change, and versions never fall in time."""
    told = [one for one in operations if one.outcome is Outcome.OK and one.version is not None]
    return [*_falling(told), *_ambiguous(told)]


def _falling(told: Sequence[Operation]) -> Iterator[str]:
    ended = sorted(told, key=lambda one: one.returned or 0.0)
    newest: Operation | None = None
    at = 0
    for later in sorted(told, key=lambda one: one.invoked):
        while at < len(ended) and (ended[at].returned or 0.0) < later.invoked:
            if newest is None or (ended[at].version or 0) > (newest.version or 0):
                newest = ended[at]
            at += 1
        if newest is not None and (later.version or 0) < (newest.version or 0) + (later.kind is not Kind.READ):
            yield f"{later} came after {newest}"


def _ambiguous(told: Sequence[Operation]) -> Iterator[str]:
    """What is known of a version's bytes has to agree, position by position, within each pair of neighbours."""
    versions: dict[int, list[Operation]] = {}
    for one in told:
        versions.setdefault(one.version or 0, []).append(one)
    for version, group in versions.items():
        changes = [one for one in group if one.kind is not Kind.READ]
        for other in changes[1:]:
            yield f"version {version} was made twice: {changes[0]} and {other}"
        # the change first, then one of each different sight
        sights = {(one.offset, one.length, one.result): one for one in group if one.kind is Kind.READ}
        known = changes[:1] + list(sights.values())
        for i, one in enumerate(known):
            for other in known[i + 1 :]:
                if not _agree(one, other):
                    yield f"version {version} has two contents: {one} and {other}"


def _agree(one: Operation, other: Operation) -> bool:
    if one.kind is Kind.READ:
        if one.result is None or other.result is None:
            return one.result is other.result
        begin, seen = one.offset, one.result
    elif one.kind is Kind.WRITE:
        begin, seen = one.offset, one.payload
        if other.result is None:
            return False
    else:
        return (other.result is None) == (one.kind is Kind.REMOVE)
    assert other.result is not None
    # a short read has told where the chunk ends, so it is asked for all that it wanted to see
    first = max(begin, other.offset)
    end = min(begin + (one.length if one.kind is Kind.READ else len(seen)), other.offset + other.length)
    return first >= end or seen[first - begin : end - begin] == other.result[first - other.offset : end - other.offset]
