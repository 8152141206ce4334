"""Nothing that is there is ever said to be absent, whatever the order of messages, transactions and time; and each rule
that makes it so is needed."""

import pytest
from threefs_meta.lease.delegation import Creator, Ownership
from threefs_mount.cache.delegation import Delegation, DirectoryDelegations, PendingCreate, PendingUnlink

from tests.harness.delegation_model import Plan, Service, explore
from threefs.wire import meta_pb2 as pb

#: The mount that claims adds names, another one adds one.
TWO = Plan(((0, "add", b"a"), (1, "add", b"x")), ticks=3)
#: Two others, at services of their own.
THREE = Plan(((1, "add", b"x"), (2, "add", b"y")), mounts=3, ticks=3)
#: The same name comes and goes.
SAME = Plan(((0, "add", b"a"), (0, "remove", b"a"), (0, "add", b"a")), mounts=1, ticks=0)
#: A service is held up, and makes a change when its client has given it up.
LATE = Plan(((0, "add", b"a"), (0, "add", b"b"), (0, "want", b""), (0, "add", b"c")), mounts=1, ticks=0, losses=1)
LATE_AND_GONE = Plan(((0, "add", b"a"), (0, "remove", b"a"), (0, "add", b"c")), mounts=1, ticks=0, losses=1)
#: It gives up, and claims again.
AGAIN = Plan(((0, "end", b""), (0, "want", b""), (1, "add", b"x")), ticks=1)
#: Both claim.
BOTH = Plan(((1, "want", b""), (1, "add", b"x")), ticks=2)


@pytest.mark.parametrize("plan", [TWO, THREE, SAME, LATE, LATE_AND_GONE, AGAIN, BOTH])
def test_nothing_that_is_there_is_said_to_be_absent(plan: Plan) -> None:
    assert explore(plan, Service()) > 300


class EndsWithoutWaiting(Service):
    @staticmethod
    def may_revoke(claim: pb.Delegation, seen_s: float, now_s: float) -> bool:
        return claim.recalled


class SecondDoesNotWait(Service):
    """Who finds the claim recalled takes it that somebody has waited."""

    def seen_s(self, claim: pb.Delegation, now_s: float) -> float:
        return now_s - 1.0 if claim.recalled else now_s


class FreesAtOnce(Service):
    """Before the holder knows that it holds it no more."""

    frees_at_once = True


class ListsAtOnce(Service):
    lists_at_once = True


class ForgetsRecalls(Service):
    """The client may take again what it is to give up."""

    @staticmethod
    def may_grant(claim: pb.Delegation, client: bytes, number: int, tick: int) -> bool:
        return not claim.client or claim.client == client


class TakesAll(Service):
    """Also what is another client's."""

    @staticmethod
    def may_grant(claim: pb.Delegation, client: bytes, number: int, tick: int) -> bool:
        return True


class TakesOldClaims(Service):
    """In place of newer ones."""

    @staticmethod
    def may_grant(claim: pb.Delegation, client: bytes, number: int, tick: int) -> bool:
        return not claim.client or (claim.client == client and not claim.recalled)


class KnowsOnlyClients(Service):
    """What a client asked for is its own, however long ago."""

    @staticmethod
    def ownership(claim: pb.Delegation, adder: Creator | None, directory: int, name: bytes) -> Ownership:
        if not claim.client:
            return Ownership.FREE
        return Ownership.OURS if adder is not None and adder.client == claim.client else Ownership.THEIRS


class CountsFromTheAnswer(DirectoryDelegations):
    def _confirm(self, claim: Delegation, sent_s: float, now_s: float) -> None:
        super()._confirm(claim, now_s, now_s)


class KeepsNamesWhenAnswered(DirectoryDelegations):
    def begin_create(self, directory: int, name: bytes, request: int, now_s: float) -> PendingCreate:
        claim = self._delegations.pop(directory, None)
        addition = super().begin_create(directory, name, request, now_s)
        if claim is not None:
            self._delegations[directory] = claim
            addition.delegation = claim if claim.granted else None
        return addition


class ForgetsWhatIsUnderWay(DirectoryDelegations):
    def begin_request(self, directory: int, number: int, now_s: float) -> tuple[Delegation, int]:
        under_way, self._pending_creates = self._pending_creates, {}
        oldest = min([one.request for one in under_way], default=number)
        claim, _ = super().begin_request(directory, number, now_s)
        self._pending_creates = under_way
        return claim, oldest


class ForgetsNamesThatMayCome(DirectoryDelegations):
    """A name goes with any removal of it."""

    def begin_unlink(self, directory: int, name: bytes) -> PendingUnlink | None:
        claim = self._delegations.get(directory)
        return None if claim is None else PendingUnlink(claim, name, claim.names.get(name, -1))

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
