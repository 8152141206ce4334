"""Failed links: two storage nodes that cannot reach each other do not stay neighbours in a chain.

Both reach the manager, so neither is silent, and writes to their chain would wait as long as the link is down. A node
reports which peers it cannot reach. When a report has stood for T, one of the two targets gives way: it gets no lease
any more, leaves the chain when its last lease has ended, as if it were silent (R9), and returns as the last one.

T is as long as the manager waits for a dead node. So a peer that is reported for T and still sends heartbeats lives,
and all others that cannot reach it have had time to say so.

Who gives way: the target whose absence leaves fewer failed links in the chain; of two equal ones the predecessor if its
node reports more peers than nodes report the successor's (then it is the one that is ill, or it lies), else the
successor. A serving target gives way only while enough others serve for writes: with fewer the chain would take no
writes either way, and would have lost a replica for reads.

A target does not return behind a tail with which it has no link. After that its return waits for a hold-off, which
doubles with each failure of the same link, so a link that comes and goes does not stop writes again and again.
Everything is kept in memory only: nodes report to a new primary, and hold-offs begin anew.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from threefs.env.clock import Clock
from threefs.ids import ChainId, NodeId, TargetId
from threefs.routing import Chain, ChainMember, LocalState, PublicState, Routing
from threefs_manager.chains.transitions import Observed

#: By node, the peers that it cannot reach, and for how many seconds.
Reports = Mapping[NodeId, Mapping[NodeId, float]]

#: Hold-offs in T: 10 s to 5 minutes with the default.
_MIN_HOLD_OFF_LEASES = 1
_MAX_HOLD_OFF_LEASES = 30
#: A link that has worked for so long, in T, has never failed.
_HEALTHY_LEASES = 30

_LOG = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Removal:
    """A target that has to leave the write path, because `reporter` cannot reach `peer`."""

    target: TargetId
    reporter: NodeId
    peer: NodeId


@dataclass(slots=True)
class _Failure:
    failed_at: float  # when the first target left its chain for it
    bad_at: float  # when the link was last known not to work
    hold_off_s: float


class LinkFailures:
    """The failed links that one primary knows of."""

    def __init__(self, clock: Clock) -> None:
        self.removals = 0  # targets that were put out, in this term
        self._clock = clock
        self._routing: Routing | None = None
        self._reports: Reports = {}
        self._minimums: Mapping[ChainId, int] = {}
        self._failures: dict[tuple[NodeId, NodeId], _Failure] = {}  # by reporter and peer
        self._leaving: dict[ChainId, Removal] = {}
        self._held: dict[TargetId, str] = {}

    def update(self, routing: Routing, reports: Reports) -> None:
        """Take in what nodes report now. `reports` has living nodes only: a dead peer is no failed link."""
        now = self._clock.monotonic()
        self._routing, self._reports = routing, reports
        self._minimums = routing.minimums() if reports else {}
        for (reporter, peer), failure in list(self._failures.items()):
            if peer in reports.get(reporter, {}):
                failure.bad_at = now
            elif now - failure.bad_at >= failure.hold_off_s + _HEALTHY_LEASES * routing.lease_s:
                del self._failures[reporter, peer]

    @property
    def was_reported(self) -> bool:
        """Whether some node could not reach another one when chains were evaluated last."""
        return bool(self._reports)

    def target_to_remove(self, chain: Chain, observed: Observed) -> TargetId | None:
        """The target of the chain that has to give way, if any. It gets no lease from now on."""
        before = self._leaving.get(chain.chain_id)
        if (
            before is not None
            and observed.get(before.target) is LocalState.OFFLINE
            and _is_written(chain, before.target)
        ):
            return before.target  # its lease has ended, and it is being put out
        removal = self._choose(chain, observed)
        if removal is None:
            self._leaving.pop(chain.chain_id, None)
            return None
        if removal != before:
            _LOG.warning(
                "a link between two nodes has failed: a target gives way",
                chain=chain.chain_id,
                target=removal.target,
                node=removal.reporter,
                unreachable_node=removal.peer,
            )
        self._leaving[chain.chain_id] = removal
        return removal.target

    def _choose(self, chain: Chain, observed: Observed) -> Removal | None:
        for member, successor in itertools.pairwise(_write_path(chain)):
            reporter, peer = self._node(member.target_id), self._node(successor.target_id)
            if self._reports.get(reporter, {}).get(peer, 0.0) < self._lease_s:
                continue
            suspects = [successor, member]
            if len(self._reported_by(reporter)) > len(self._reporters_of(peer)):
                suspects.reverse()
            for suspect in sorted(suspects, key=lambda each: self._failed_links(chain, each.target_id)):
                if self._may_leave(chain, suspect, observed):
                    return Removal(suspect.target_id, reporter, peer)
        return None

    def _may_leave(self, chain: Chain, member: ChainMember, observed: Observed) -> bool:
        if member.state is PublicState.SYNCING:
            return True
        others = [t for t in chain.serving if t != member.target_id and _is_alive(observed.get(t))]
        return len(others) >= self._minimums.get(chain.chain_id, 1)

    def _reported_by(self, reporter: NodeId) -> set[NodeId]:
        """The peers that this node cannot reach, or could not reach lately."""
        return {*self._reports.get(reporter, ())} | {peer for node, peer in self._failures if node == reporter}

    def _reporters_of(self, peer: NodeId) -> set[NodeId]:
        reporters = {node for node, peers in self._reports.items() if peer in peers}
        return reporters | {node for node, other in self._failures if other == peer}

    def _failed_links(self, chain: Chain, without: TargetId) -> int:
        """How many neighbours in the write path cannot reach each other if this target leaves."""
        nodes = [self._node(m.target_id) for m in _write_path(chain) if m.target_id != without]
        return sum(self._is_reported(one, other) for one, other in itertools.pairwise(nodes))

    def _is_reported(self, one: NodeId, other: NodeId) -> bool:
        return other in self._reports.get(one, ()) or one in self._reports.get(other, ())

    def on_change(self, before: Chain, after: Chain) -> None:
        """A chain has changed: note the failed link for which a target was put out."""
        removal = self._leaving.pop(before.chain_id, None)
        if removal is None or not _is_written(before, removal.target) or _is_written(after, removal.target):
            return
        self.removals += 1
        now = self._clock.monotonic()
        failure = self._failures.setdefault(
            (removal.reporter, removal.peer), _Failure(now, now, _MIN_HOLD_OFF_LEASES * self._lease_s)
        )
        if now >= failure.failed_at + failure.hold_off_s:  # else the same failure has struck another chain
            failure.failed_at = now
            failure.hold_off_s = min(2 * failure.hold_off_s, _MAX_HOLD_OFF_LEASES * self._lease_s)
        _LOG.warning(
            "a target was put out of its chain, because a link between two nodes has failed",
            chain=before.chain_id,
            target=removal.target,
            node=removal.reporter,
            unreachable_node=removal.peer,
            hold_off_s=failure.hold_off_s,
        )

    def held_targets(self, chain: Chain) -> list[TargetId]:
        """The targets that must not return now: the tail, which would bring them up to date, has no link with them."""
        held = []
        for member in chain.members:
            self._held.pop(member.target_id, None)
            if member.state in (PublicState.WAITING, PublicState.OFFLINE) and chain.tail is not None:
                reason = self._obstacle(chain.tail, member.target_id)
                if reason:
                    held.append(member.target_id)
                    self._held[member.target_id] = f"target {member.target_id} of chain {chain.chain_id} {reason}"
        return held

    def _obstacle(self, tail: TargetId, target: TargetId) -> str:
        """Why the target cannot return behind that tail now; empty if it can."""
        one, other = self._node(tail), self._node(target)
        link = f"the network between nodes {one} and {other}"
        if self._is_reported(one, other):
            return f"is out, because target {tail} cannot reach it, or the other way round: check {link}"
        left_s = max(self._hold_off_left_s(one, other), self._hold_off_left_s(other, one))
        if left_s > 0:
            return f"is out, because {link} has failed; it works now, and the target returns in {left_s:.0f} s"
        return ""

    def _hold_off_left_s(self, reporter: NodeId, peer: NodeId) -> float:
        failure = self._failures.get((reporter, peer))
        return failure.failed_at + failure.hold_off_s - self._clock.monotonic() if failure is not None else 0.0

    def reasons(self) -> dict[TargetId, str]:
        """Why targets are out, or about to leave, in words of an administrator."""
        leaving = {
            removal.target: (
                f"target {removal.target} of chain {chain_id} is about to be put out, because node {removal.reporter} "
                f"cannot reach node {removal.peer}: check the network between them"
            )
            for chain_id, removal in self._leaving.items()
        }
        return self._held | leaving

    @property
    def hold_off_left_s(self) -> float:
        """The time until the last hold-off ends."""
        return max((self._hold_off_left_s(*link) for link in self._failures), default=0.0)

    @property
    def _lease_s(self) -> float:
        assert self._routing is not None, "a chain is evaluated only after `update`"
        return self._routing.lease_s

    def _node(self, target: TargetId) -> NodeId:
        assert self._routing is not None, "a chain is evaluated only after `update`"
        return self._routing.targets[target].node_id


def _is_written(chain: Chain, target: TargetId) -> bool:
    return target in [member.target_id for member in _write_path(chain)]


def _is_alive(state: LocalState | None) -> bool:
    return state in (LocalState.UPTODATE, LocalState.ONLINE)


def _write_path(chain: Chain) -> list[ChainMember]:
    return [member for member in chain.members if member.state in (PublicState.SERVING, PublicState.SYNCING)]
