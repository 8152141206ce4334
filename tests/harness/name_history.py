"""What clients did to a few names, and whether all that they were told fits one order.

A name holds a token (the target of a symbolic link) or nothing. Tokens are never used twice, so a look tells which of
all creations it saw. Names are judged in groups: a rename touches two of them at once.

The checker goes through the events in the order of time and keeps every state that the group may be in, with those of
the operations under way that have taken effect in it. When an operation returns, only states remain in which it has.
An operation of unknown outcome stays under way until nobody works on it any more (`OPEN_S`): whoever answers it knows
its deadline. Of two states that differ only in how many of those have taken effect the one with fewer is enough: what
has not happened may still happen.
"""

import enum
import heapq
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

MOST_STATES = 300_000
ALIKE = "*"  # any token that nobody sees any more
#: An operation that its caller has given up has no effect later than that. Deadlines travel with calls; programs that
#: stand still over one find it passed when they go on.
OPEN_S = 90.0


class Act(enum.StrEnum):
    MAKE = "make"  # only where nothing is
    REMOVE = "remove"
    RENAME = "rename"  # replaces what is there
    LOOK = "look"


@dataclass(frozen=True, slots=True)
class Deed:
    """One call. `done` is None while nobody knows whether it had its effect. Then `returned` is when its caller gave it
    up; 0: never."""

    client: str
    act: Act
    name: str
    invoked: float
    returned: float = 0.0
    done: bool | None = None  # False: it found the name taken, or missing
    other: str = ""  # of a rename: the new name
    token: str = ""  # that a creation puts there, or that a look has seen
    cached: bool = False  # the kernel of a mount answered, perhaps by names that it had looked up a moment ago

    def __str__(self) -> str:
        told = "?" if self.done is None else "done" if self.done else "refused"
        arrow = f" -> {self.other}" if self.other else ""
        span = f"[{self.invoked:.3f}, {self.returned:.3f}]" if self.returned else f"[{self.invoked:.3f}, open]"
        return f"{span} {self.client}: {self.act} {self.name}{arrow} {self.token} {told}"


State = tuple[tuple[str, str], ...]  # (name, token) of the names that there are, in order
Config = tuple[State, frozenset[int]]  # with what is under way and has taken effect


class NameHistory:
    def __init__(self) -> None:
        self.groups: dict[str, list[Deed]] = {}

    def begin(self, group: str, deed: Deed) -> int:
        """Its place. Told as unknown, until `end` tells how it ended."""
        deeds = self.groups.setdefault(group, [])
        deeds.append(deed)
        return len(deeds) - 1

    def end(self, group: str, place: int, returned: float, done: bool, token: str = "") -> None:
        deed = self.groups[group][place]
        self.groups[group][place] = replace(deed, returned=returned, done=done, token=token or deed.token)

    def give_up(self, group: str, place: int, returned: float) -> None:
        """Its outcome is not known, and nobody waits for it any more."""
        self.groups[group][place] = replace(self.groups[group][place], returned=returned)

    def forget(self, group: str, place: int) -> None:
        """It certainly had no effect, and why tells nothing."""
        self.groups[group][place] = replace(self.groups[group][place], act=Act.LOOK)

    def __len__(self) -> int:
        return sum(map(len, self.groups.values()))


class Undecided(Exception):
    """More states than can be kept: neither verdict is known."""


def violations(history: NameHistory) -> list[str]:
    """One line for each group that has no order, or whose order could not be decided."""
    found = []
    for group, deeds in history.groups.items():
        try:
            wrong = judge(deeds)
        except Undecided as error:
            wrong = f"undecided: {error}"
        if wrong:
            found.append(f"names of {group}: {wrong}")
    return found


def judge(deeds: Iterable[Deed]) -> str:
    """Empty if there is an order; else what cannot be explained. Raises Undecided."""
    search = _Search([deed for deed in deeds if deed.act is not Act.LOOK or deed.done is not None])
    configs: set[Config] = {((), frozenset())}
    for time, returns, number in sorted(_events(search.deeds)):
        if not returns:
            search.under_way.add(number)
            continue
        if search.deeds[number].done is not None:
            configs = search.returned(configs, number, time)
        configs = {(state, applied - {number}) for state, applied in configs}
        search.under_way.discard(number)
        if not configs:
            around = [search.deeds[n] for n in sorted(search.under_way | {number})]
            return "no order explains " + "; ".join(map(str, [search.deeds[number], *around][:8]))
    return ""


def _events(deeds: list[Deed]) -> Iterator[tuple[float, bool, int]]:
    for number, deed in enumerate(deeds):
        yield deed.invoked, False, number
        if deed.done is not None or deed.returned:
            yield _end(deed), True, number


def _end(deed: Deed) -> float:
    """Until when it may have its effect."""
    if deed.done is not None:
        return deed.returned
    return deed.returned + OPEN_S if deed.returned else math.inf


class _Search:
    """The states that explain what has returned, as few of them as are enough.

    - A call that changes nothing (a look, a refusal) takes effect as soon as the state fits: to wait cannot help.
    - Of calls of unknown outcome that would do the same, the one that ends first takes effect first.
    - Tokens that no later look sees are all alike.

    A rename through a mount may have no effect: a kernel that holds both names for one inode does nothing and says that
    it is done, as POSIX wants, and it may hold a name from before another client renamed the file.
    """

    def __init__(self, deeds: list[Deed]) -> None:
        self.deeds = deeds
        self.under_way: set[int] = set()
        self._changes = [deed.act is not Act.LOOK and deed.done is not False for deed in deeds]
        self._last_seen = {
            deed.token: deed.returned
            for deed in sorted(deeds, key=lambda deed: deed.returned)
            if deed.act is Act.LOOK and deed.token
        }

    def returned(self, configs: set[Config], number: int, time: float) -> set[Config]:
        """All that may be once this one has returned: others under way may have taken effect before it."""
        found: set[Config] = set()
        fewest = _Fewest(self.deeds)
        order = itertools.count()
        may_be_nothing = self.deeds[number].cached and self.deeds[number].act is Act.RENAME
        waiting: list[tuple[int, int, Config]] = []  # those that have used up few come first

        def add(config: Config) -> None:
            shortest = self._shortest(config, time)
            heapq.heappush(waiting, (fewest.used(shortest[1]), next(order), shortest))

        for config in configs:
            add(config)
        while waiting:
            state, applied = config = heapq.heappop(waiting)[2]
            if not fewest.admit(config):
                continue
            if fewest.admitted > MOST_STATES:
                raise Undecided(f"more than {MOST_STATES} states at {self.deeds[number]}")
            if number in applied or may_be_nothing:
                found.add(config)
            if number in applied:
                continue
            for each in self._choices(applied, time):
                after = apply(state, self.deeds[each])
                if after is not None:
                    add((after, applied | {each}))
        return found

    def _shortest(self, config: Config, time: float) -> Config:
        state, applied = config
        alike = tuple(
            (name, token if self._last_seen.get(token, -math.inf) >= time else ALIKE) for name, token in state
        )
        unchanged = [
            n for n in self.under_way - applied if not self._changes[n] and apply(state, self.deeds[n]) is not None
        ]
        return alike, applied.union(unchanged)

    def _choices(self, applied: frozenset[int], time: float) -> list[int]:
        """The changes under way that may take effect next."""
        known: list[int] = []
        first: dict[tuple[Act, str, str, str], int] = {}
        for number in self.under_way - applied:
            deed = self.deeds[number]
            if not self._changes[number]:
                continue
            if deed.done is not None:
                known.append(number)
                continue
            token = deed.token if self._last_seen.get(deed.token, -math.inf) >= time else ""
            effect = (deed.act, deed.name, deed.other, token)
            if effect not in first or _end(deed) < _end(self.deeds[first[effect]]):
                first[effect] = number
        return [*known, *first.values()]


class _Fewest:
    """Of states that are alike, those that have used up fewest operations of unknown outcome. They are shown in the
    order of how many they have used up."""

    def __init__(self, deeds: list[Deed]) -> None:
        self._open = frozenset(number for number, deed in enumerate(deeds) if deed.done is None)
        self._seen: dict[Config, list[frozenset[int]]] = {}
        self.admitted = 0

    def used(self, applied: frozenset[int]) -> int:
        return len(applied & self._open)

    def admit(self, config: Config) -> bool:
        state, applied = config
        opened = applied & self._open
        choices = self._seen.setdefault((state, applied - opened), [])
        if any(other <= opened for other in choices):
            return False
        choices.append(opened)
        self.admitted += 1
        return True


def apply(state: State, deed: Deed) -> State | None:
    """The state after it; None where it cannot have gone as it was told. One of unknown outcome has had its effect."""
    names = dict(state)
    there = names.get(deed.name, "")
    if deed.act is Act.LOOK:
        return state if there == deed.token else None
    if deed.act is Act.MAKE:
        if deed.done is False:
            return state if there else None
        if there:
            return None
        names[deed.name] = deed.token
    elif deed.done is False:
        return None if there else state
    elif not there:
        return None
    elif deed.act is Act.REMOVE:
        del names[deed.name]
    else:
        names[deed.other] = names.pop(deed.name)
    return tuple(sorted(names.items()))
