"""Nothing that is there is ever said to be absent, whatever the order of messages, transactions and time; and each rule
that makes it so is needed."""

import pytest
from threefs_meta.lease.delegation import Creator, Ownership
from threefs_mount.cache.delegation import Delegation, DirectoryDelegations, PendingCreate, PendingUnlink

from tests.harness.delegation_model import Plan, Service, explore
from threefs.wire import meta_pb2 as pb

#: The mount with the delegation adds names, another one adds one.
TWO = Plan(((0, "add", b"a"), (1, "add", b"x")), ticks=3)
#: Two others, at services of their own.
THREE = Plan(((1, "add", b"x"), (2, "add", b"y")), mounts=3, ticks=3)
#: The same name comes and goes.
SAME = Plan(((0, "add", b"a"), (0, "remove", b"a"), (0, "add", b"a")), mounts=1, ticks=0)
#: A service is held up, and makes a change when its client has given it up.
LATE = Plan(((0, "add", b"a"), (0, "add", b"b"), (0, "want", b""), (0, "add", b"c")), mounts=1, ticks=0, losses=1)
LATE_AND_GONE = Plan(((0, "add", b"a"), (0, "remove", b"a"), (0, "add", b"c")), mounts=1, ticks=0, losses=1)
#: It returns the delegation, and asks again.
AGAIN = Plan(((0, "end", b""), (0, "want", b""), (1, "add", b"x")), ticks=1)
#: Both ask for it.
BOTH = Plan(((1, "want", b""), (1, "add", b"x")), ticks=2)


@pytest.mark.parametrize("plan", [TWO, THREE, SAME, LATE, LATE_AND_GONE, AGAIN, BOTH])
def test_nothing_that_is_there_is_said_to_be_absent(plan: Plan) -> None:
    assert explore(plan, Service()) > 300


class EndsWithoutWaiting(Service):
    @staticmethod
    def may_revoke(delegation: pb.Delegation, seen_s: float, now_s: float) -> bool:
        return delegation.recalled


class SecondDoesNotWait(Service):
    """A service that finds the delegation recalled takes it that another one has waited."""

    def seen_s(self, delegation: pb.Delegation, now_s: float) -> float:
        return now_s - 1.0 if delegation.recalled else now_s


class FreesAtOnce(Service):
    """Before the holder knows that it holds it no more."""

    frees_at_once = True


class ListsAtOnce(Service):
    lists_at_once = True


class ForgetsRecalls(Service):
    """The client may take again what it is to give up."""

    @staticmethod
    def may_grant(delegation: pb.Delegation, client: bytes, number: int, tick: int) -> bool:
        return not delegation.client or delegation.client == client


class TakesAll(Service):
    """Also what is another client's."""

    @staticmethod
    def may_grant(delegation: pb.Delegation, client: bytes, number: int, tick: int) -> bool:
        return True


class TakesOldClaims(Service):
    """In place of newer ones."""

    @staticmethod
    def may_grant(delegation: pb.Delegation, client: bytes, number: int, tick: int) -> bool:
        return not delegation.client or (delegation.client == client and not delegation.recalled)


class KnowsOnlyClients(Service):
    """What a client asked for is its own, however long ago."""

    @staticmethod
    def ownership(delegation: pb.Delegation, adder: Creator | None, directory: int, name: bytes) -> Ownership:
        if not delegation.client:
            return Ownership.FREE
        return Ownership.OURS if adder is not None and adder.client == delegation.client else Ownership.THEIRS


class CountsFromTheAnswer(DirectoryDelegations):
    def _confirm(self, delegation: Delegation, sent_s: float, now_s: float) -> None:
        super()._confirm(delegation, now_s, now_s)


class KeepsNamesWhenAnswered(DirectoryDelegations):
    def begin_create(self, directory: int, name: bytes, request: int, now_s: float) -> PendingCreate:
        delegation = self._delegations.pop(directory, None)
        addition = super().begin_create(directory, name, request, now_s)
        if delegation is not None:
            self._delegations[directory] = delegation
            addition.delegation = delegation if delegation.granted else None
        return addition


class ForgetsWhatIsUnderWay(DirectoryDelegations):
    def begin_request(self, directory: int, number: int, now_s: float) -> tuple[Delegation, int]:
        under_way, self._pending_creates = self._pending_creates, {}
        oldest = min([one.request for one in under_way], default=number)
        delegation, _ = super().begin_request(directory, number, now_s)
        self._pending_creates = under_way
        return delegation, oldest


class ForgetsNamesThatMayCome(DirectoryDelegations):
    """A name goes with any removal of it."""

    def begin_unlink(self, directory: int, name: bytes) -> PendingUnlink | None:
        delegation = self._delegations.get(directory)
        return None if delegation is None else PendingUnlink(delegation, name, delegation.names.get(name, -1))

    def unlink_done(self, removal: PendingUnlink | None) -> None:
        if removal is not None:
            removal.delegation.names.pop(removal.name, None)


class TakesUnknownOutcomesForFailures(DirectoryDelegations):
    def create_failed(self, addition: PendingCreate) -> None:
        del self._pending_creates[addition]


class KeepsRelying(DirectoryDelegations):
    """Though it was recalled, until its time is over."""

    def create_done(self, addition: PendingCreate, number: int, recalled: int, now_s: float) -> None:
        if recalled:
            del self._pending_creates[addition]
            self._return(addition.directory, recalled)
        else:
            super().create_done(addition, number, recalled, now_s)


@pytest.mark.parametrize(
    ("service", "mount", "plan"),
    [
        (EndsWithoutWaiting(), DirectoryDelegations, TWO),
        (SecondDoesNotWait(), DirectoryDelegations, THREE),
        (FreesAtOnce(), DirectoryDelegations, TWO),
        (ListsAtOnce(), DirectoryDelegations, TWO),
        (ForgetsRecalls(), DirectoryDelegations, AGAIN),
        (TakesOldClaims(), DirectoryDelegations, AGAIN),
        (TakesAll(), DirectoryDelegations, BOTH),
        (KnowsOnlyClients(), DirectoryDelegations, LATE),
        (Service(), CountsFromTheAnswer, TWO),
        (Service(), KeepsNamesWhenAnswered, TWO),
        (Service(), ForgetsWhatIsUnderWay, LATE),
        (Service(), ForgetsNamesThatMayCome, SAME),
        (Service(), TakesUnknownOutcomesForFailures, LATE_AND_GONE),
        (Service(), KeepsRelying, TWO),
    ],
)
def test_every_rule_is_needed(service: Service, mount: type[DirectoryDelegations], plan: Plan) -> None:
    with pytest.raises(AssertionError, match="is absent"):
        explore(plan, service, mount)
