"""One directory, mounts that ask for its delegation, and services that add names: states that can be explored.

The decisions are the real ones (`threefs_meta.lease.delegation`, `threefs_mount.cache.delegation`); transactions,
messages and time are modelled: a transaction is one step, messages arrive in any order, late, or are given up by who
has sent them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from threefs_meta.lease import delegation as rules
from threefs_meta.lease.delegation import Creator, DelegationHeld, Ownership
from threefs_mount.cache.delegation import Delegation, DirectoryDelegations, PendingCreate, PendingUnlink

from threefs.wire import meta_pb2 as pb

DIRECTORY = 7
#: A delegation is relied on for two of them, and ended without its client after two. No sum of them is rounded.
STEP_S = 5 / 32
Kind = Literal["add", "remove", "delegate", "list", "return"]


@dataclass(frozen=True, slots=True)
class Message:
    """From its sending until its answer is taken."""

    mount: int
    number: int
    kind: Kind
    name: bytes = b""
    oldest: int = 0
    given_up: bool = False  # nobody waits for the answer
    in_the_way: tuple[int, int] | None = None  # a delegation, by client and number, that is to be recalled
    seen_s: float | None = None  # when it was seen recalled
    answer: tuple[int, int] | tuple[bytes, ...] | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What may happen, once each: (mount, what, name), those of one mount in that order.

    "want": it asks for the delegation once more. "end": it has not used the delegation for a while.
    """

    steps: tuple[tuple[int, Literal["add", "remove", "want", "end"], bytes], ...]
    mounts: int = 2
    ticks: int = 5
    losses: int = 0


class Service:
    """What a meta service decides; tests take rules away."""

    ownership = staticmethod(rules.ownership)
    may_grant = staticmethod(rules.may_grant)
    may_revoke = staticmethod(rules.may_revoke)
    frees_at_once = False  # when it answers a holder that the delegation is recalled
    lists_at_once = False  # does not wait for the grant

    def seen_s(self, delegation: pb.Delegation, now_s: float) -> float:
        return now_s


class World:
    def __init__(self, plan: Plan, service: Service, mount: type[DirectoryDelegations]) -> None:
        self.plan = plan
        self.service = service
        self.mount = mount
        self.now_s = 1000.0
        self.delegation = pb.Delegation()
        self.names: frozenset[bytes] = frozenset()
        self.messages: tuple[Message, ...] = ()
        self.done = [0] * plan.mounts  # steps of each
        self.ticks = plan.ticks
        self.losses = plan.losses
        self.numbers = [0] * plan.mounts
        self.wanted: list[int] = []
        self.delegations = [self._mount_delegations(number) for number in range(plan.mounts)]
        self.removals: dict[tuple[int, int], PendingUnlink | None] = {}
        self.asked_s: dict[tuple[int, int], float] = {}
        self._begin()

    def _mount_delegations(self, number: int) -> DirectoryDelegations:
        return self.mount(
            lambda directory: self.wanted.append(number),
            lambda directory, delegation: self._send(Message(number, delegation, "return")),
            creates_before_request=1,
        )

    def _begin(self) -> None:
        """The first mount has added a name behind a look, and wants the directory."""
        self.delegations[0].record_negative_lookup(DIRECTORY, self.now_s)
        self._add(0, b"first")
        (message,) = self.messages
        self._replace(message, None)
        self._take(self._execute(message))
        assert self.wanted == [0]

    def copy(self) -> "World":
        other = object.__new__(World)
        other.plan, other.service, other.mount = self.plan, self.service, self.mount
        other.now_s, other.names, other.messages = self.now_s, self.names, self.messages
        other.ticks, other.losses = self.ticks, self.losses
        other.delegation = pb.Delegation()
        other.delegation.CopyFrom(self.delegation)
        other.done, other.numbers, other.wanted = self.done[:], self.numbers[:], self.wanted[:]
        other.asked_s = dict(self.asked_s)
        pieces: dict[int, Delegation] = {}
        other.delegations = [
            _copied(mine, other._mount_delegations(number), pieces) for number, mine in enumerate(self.delegations)
        ]
        other.removals = {
            key: None if one is None else replace(one, delegation=_copied_delegation(one.delegation, pieces))
            for key, one in self.removals.items()
        }
        return other

    def key(self) -> object:
        """What the future depends on: times count from now."""
        return (
            self.delegation.SerializeToString(deterministic=True),
            self.names,
            frozenset(
                replace(one, seen_s=None if one.seen_s is None else self._ago(one.seen_s)) for one in self.messages
            ),
            tuple(self.done),
            self.ticks,
            self.losses,
            tuple(self.wanted),
            tuple(
                (
                    tuple(
                        (
                            one.number,
                            one.granted,
                            one.complete,
                            self._ago(one.confirmed_s),
                            tuple(sorted(one.names.items())),
                        )
                        for one in mine._delegations.values()
                    ),
                    tuple(
                        (one.request, self._ago(one.sent_s), one.delegation is not None)
                        for one in mine._pending_creates
                    ),
                    mine._newest_unknown_outcome,
                )
                for mine in self.delegations
            ),
            tuple((key, None if one is None else one.serial) for key, one in self.removals.items()),
        )

    def _ago(self, moment_s: float) -> float:
        return round(min(self.now_s - moment_s, 2.0), 3)

    # ---- what is to hold

    def check(self) -> None:
        for number, mine in enumerate(self.delegations):
            for name in self.names:
                assert not mine.is_negative(DIRECTORY, name, self.now_s), f"mount {number} says that {name!r} is absent"

    # ---- what may happen

    def steps(self) -> Iterator[Callable[["World"], None]]:
        if self.ticks:
            yield World._tick
        for mount in set(self.wanted):
            yield partial(World._ask, mount=mount)
        for mount, (what, name) in self._next_steps():
            yield partial(World._plan_step, mount=mount, what=what, name=name)
        for message in self.messages:
            if message.answer is None:
                yield partial(World._run, message=message)
                if self.losses and message.kind == "add" and not message.given_up:
                    yield partial(World._lose, message=message)
            else:
                yield partial(World._taken, message=message)

    def _next_steps(self) -> Iterator[tuple[int, tuple[str, bytes]]]:
        for mount in range(self.plan.mounts):
            mine = [(what, name) for number, what, name in self.plan.steps if number == mount]
            if self.done[mount] == len(mine):
                continue
            what, name = mine[self.done[mount]]
            if what != "want" or (DIRECTORY not in self.delegations[mount]._delegations and mount not in self.wanted):
                yield mount, (what, name)

    def _plan_step(self, mount: int, what: str, name: bytes) -> None:
        self.done[mount] += 1
        if what == "add":
            self._add(mount, name)
        elif what == "end":
            self.delegations[mount].return_all()
        elif what == "want":
            self.delegations[mount]._requested.add(DIRECTORY)
            self.wanted.append(mount)
        else:
            number = self._number(mount)
            self.removals[mount, number] = self.delegations[mount].begin_unlink(DIRECTORY, name)
            self._send(Message(mount, number, "remove", name))

    def _tick(self) -> None:
        self.ticks -= 1
        self.now_s += STEP_S

    def _number(self, mount: int) -> int:
        self.numbers[mount] += 1
        return self.numbers[mount]

    def _send(self, message: Message) -> None:
        self.messages += (message,)

    def _replace(self, message: Message, after: Message | None) -> None:
        self.messages = tuple(one for one in self.messages if one is not message)
        if after is not None:
            self._send(after)

    def _add(self, mount: int, name: bytes) -> None:
        number = self._number(mount)
        self.delegations[mount].begin_create(DIRECTORY, name, number, self.now_s)
        self._send(Message(mount, number, "add", name))

    def _ask(self, mount: int) -> None:
        self.wanted.remove(mount)
        number = self._number(mount)
        _, oldest = self.delegations[mount].begin_request(DIRECTORY, number, self.now_s)
        self.asked_s[mount, number] = self.now_s
        self._send(Message(mount, number, "delegate", oldest=oldest))
        if self.service.lists_at_once:
            self._send(Message(mount, number, "list"))

    def _lose(self, message: Message) -> None:
        """Its mount gives up waiting, and it may be executed yet."""
        self.losses -= 1
        self.delegations[message.mount].create_failed(self._addition(message))
        self._replace(message, replace(message, given_up=True))

    def _addition(self, message: Message) -> PendingCreate:
        return next(one for one in self.delegations[message.mount]._pending_creates if one.request == message.number)

    # ---- transactions

    def _run(self, message: Message) -> None:
        self._replace(message, self._execute(message))

    def _execute(self, message: Message) -> Message | None:
        client = b"%d" % message.mount
        if message.in_the_way is not None:
            return self._wait(message, DelegationHeld(DIRECTORY, b"%d" % message.in_the_way[0], message.in_the_way[1]))
        if message.kind == "add":
            return self._execute_add(message, client)
        if message.kind == "delegate":
            granted = self.service.may_grant(self.delegation, client, message.number, 1 + rules.COOLDOWN_TICKS)
            if granted:
                self.delegation = rules.granted(client, message.number, message.oldest)
            return replace(message, answer=(message.number if granted else 0, 0))
        if message.kind == "list":
            return replace(message, answer=tuple(sorted(self.names)))
        if message.kind == "remove":
            self.names -= {message.name}
            return replace(message, answer=(0, 0))
        if rules.is_same(self.delegation, client, message.number):
            self._end()
        return None

    def _execute_add(self, message: Message, client: bytes) -> Message | None:
        adder = Creator(client, message.number, (pb.Place(base=DIRECTORY, path=message.name),))
        ownership = self.service.ownership(self.delegation, adder, DIRECTORY, message.name)
        if ownership is Ownership.THEIRS:
            return replace(message, in_the_way=(int(self.delegation.client), self.delegation.number))
        self.names |= {message.name}
        answer = (0, 0)
        if ownership is Ownership.OURS:
            answer = (0, self.delegation.number) if self.delegation.recalled else (self.delegation.number, 0)
            if self.delegation.recalled and self.service.frees_at_once:
                self._end()
        return None if message.given_up else replace(message, answer=answer)

    def _wait(self, message: Message, held: DelegationHeld) -> Message:
        """As `recalls`: recalled by one transaction, looked at by others."""
        through = replace(message, in_the_way=None, seen_s=None)
        if not held.matches(self.delegation):
            return through
        if message.seen_s is None:
            seen_s = self.service.seen_s(self.delegation, self.now_s)
            rules.recall(self.delegation, 1)
            return replace(message, seen_s=seen_s)
        if self.service.may_revoke(self.delegation, message.seen_s, self.now_s):
            self._end()
            return through
        return message

    def _end(self) -> None:
        inode = pb.Inode(delegation=self.delegation)
        rules.clear(inode)
        self.delegation = inode.delegation

    # ---- answers

    def _taken(self, message: Message) -> None:
        self._replace(message, None)
        self._take(message)

    def _take(self, message: Message | None) -> None:
        assert message is not None and message.answer is not None, "it was answered"
        mine = self.delegations[message.mount]
        if message.kind == "add":
            delegation, recalled = message.answer
            assert isinstance(delegation, int) and isinstance(recalled, int)
            mine.create_done(self._addition(message), delegation, recalled, self.now_s)
        elif message.kind == "remove":
            mine.unlink_done(self.removals.pop((message.mount, message.number)))
        else:
            self._take_delegation(message, mine)

    def _take_delegation(self, message: Message, mine: DirectoryDelegations) -> None:
        delegation = mine._delegations.get(DIRECTORY)
        if delegation is None or delegation.number != message.number:
            return
        assert message.answer is not None, "it was answered"
        if message.kind == "list":
            mine.insert_names(
                delegation, [one for one in message.answer if isinstance(one, bytes)], self.now_s, more=False
            )
            return
        number = message.answer[0]
        assert isinstance(number, int)
        asked_s = self.asked_s[message.mount, message.number]
        if mine.request_answered(delegation, number, asked_s, self.now_s) and not self.service.lists_at_once:
            self._send(Message(message.mount, message.number, "list"))


def explore(
    plan: Plan, service: Service, mount: type[DirectoryDelegations] = DirectoryDelegations, *, most: int = 200_000
) -> int:
    """Visit every state; how many there are. Raises AssertionError where one must not be."""
    first = World(plan, service, mount)
    seen = {first.key()}
    todo = [first]
    while todo:
        world = todo.pop()
        for step in list(world.steps()):
            following = world.copy()
            step(following)
            following.check()
            key = following.key()
            if key not in seen:
                seen.add(key)
                todo.append(following)
        assert len(seen) < most, "the plan is too large"
    return len(seen)


def _copied(
    mine: DirectoryDelegations, fresh: DirectoryDelegations, pieces: dict[int, Delegation]
) -> DirectoryDelegations:
    fresh._delegations = {key: _copied_delegation(one, pieces) for key, one in mine._delegations.items()}
    fresh._pending_creates = {
        replace(one, delegation=None if one.delegation is None else _copied_delegation(one.delegation, pieces)): None
        for one in mine._pending_creates
    }
    fresh._requested, fresh._name_count, fresh._serial = set(mine._requested), mine._name_count, mine._serial
    fresh._newest_unknown_outcome = mine._newest_unknown_outcome
    fresh._candidates.update((key, replace(one)) for key, one in mine._candidates.items())
    return fresh


def _copied_delegation(delegation: Delegation, pieces: dict[int, Delegation]) -> Delegation:
    if id(delegation) not in pieces:
        pieces[id(delegation)] = replace(delegation, names=dict(delegation.names))
    return pieces[id(delegation)]
