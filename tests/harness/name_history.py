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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

MOST_STATES = 300_000
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
    """One line for each group that has no order."""
    return [f"names of {group}: {wrong}" for group, deeds in history.groups.items() if (wrong := judge(deeds))]


def judge(deeds: Iterable[Deed]) -> str:
    """Empty if there is an order; else what cannot be explained. Raises Undecided."""
    counted = [deed for deed in deeds if deed.act is not Act.LOOK or deed.done is not None]
    events = sorted(_events(counted))
    under_way: set[int] = set()
    configs: set[Config] = {((), frozenset())}
    for _, returns, number in events:
        if not returns:
            under_way.add(number)
            continue
        if counted[number].done is None:
            configs = {(state, applied - {number}) for state, applied in configs}
        else:
            configs = _returned(counted, configs, under_way, number)
        under_way.discard(number)
        if not configs:
            around = [counted[n] for n in sorted(under_way | {number})]
            return "no order explains " + "; ".join(map(str, [counted[number], *around][:8]))
    return ""


def _events(deeds: list[Deed]) -> Iterator[tuple[float, bool, int]]:
    for number, deed in enumerate(deeds):
        yield deed.invoked, False, number
        if deed.done is not None:
            yield deed.returned, True, number
        elif deed.returned:
            yield deed.returned + OPEN_S, True, number


def _returned(deeds: list[Deed], configs: set[Config], under_way: set[int], number: int) -> set[Config]:
    """All that may be once this one has returned: others under way may have taken effect before it."""
    found: set[Config] = set()
    waiting = list(configs)
    seen = set(configs)
    while waiting:
        state, applied = waiting.pop()
        if number in applied:
            found.add((state, applied - {number}))
            continue
        for each in under_way - applied:
            after = apply(state, deeds[each])
            if after is not None:
                made = (after, applied | {each})
                if made not in seen:
                    if len(seen) > MOST_STATES:
                        raise Undecided(f"more than {MOST_STATES} states at {deeds[number]}")
                    seen.add(made)
                    waiting.append(made)
    return _fewest(deeds, found)


def _fewest(deeds: list[Deed], configs: set[Config]) -> set[Config]:
    """Without those that another one dominates: the same, with fewer operations of unknown outcome used up."""
    by_rest: dict[tuple[State, frozenset[int]], list[frozenset[int]]] = {}
    for state, applied in configs:
        opened = frozenset(number for number in applied if deeds[number].done is None)
        by_rest.setdefault((state, applied - opened), []).append(opened)
    kept: set[Config] = set()
    for (state, rest), choices in by_rest.items():
        best = [one for one in choices if not any(other < one for other in choices)]
        kept.update((state, rest | one) for one in best)
    return kept


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
