"""A heartbeat that a manager refuses, because it has not renewed its own lease in time, shows that its sender lives."""

import dataclasses

import pytest
from threefs_manager.nodes.failure_detector import FailureDetector
from threefs_manager.stale_stores.manager_store import StaleStoreDetector

from tests.harness.clocks import SteppedClock
from threefs.ids import ChainId, NodeId, TargetId
from threefs.routing import EMPTY, Chain, ChainMember, LocalState, Node, NodeKind, PublicState, Routing, Target
from threefs.wire import manager_pb2 as pb

T = 10.0
TARGET = TargetId(101)


def routing_of(state: PublicState = PublicState.SERVING) -> Routing:
    chain = Chain(ChainId(1), 3, (ChainMember(TARGET, state),))
    node = Node(NodeId(1), NodeKind.STORAGE, "s1:1", "", 7)
    targets = {TARGET: Target(TARGET, NodeId(1), ChainId(1))}
    return dataclasses.replace(
        EMPTY, version=7, lease_ms=10_000, nodes={NodeId(1): node}, targets=targets, chains={ChainId(1): chain}
    )


def beat(
    incarnation: int = 7,
    chain_version: int = 3,
    local_state: pb.LocalState = pb.LOCAL_UPTODATE,
    *,
    leaving: bool = False,
) -> pb.HeartbeatRequest:
    report = pb.TargetReport(target_id=TARGET, chain_version=chain_version, local_state=local_state)
    return pb.HeartbeatRequest(node_id=1, incarnation=incarnation, targets=[report], leaving=leaving)


def word(detector: FailureDetector, routing: Routing) -> LocalState | None:
    return detector.evaluate(routing.chains[ChainId(1)], routing, T)[TARGET]


@pytest.mark.parametrize("is_known", [True, False])
def test_its_targets_are_not_silent(is_known: bool) -> None:
    """Nor are those of a node that this term has not heard at all: the store went away when it had just begun."""
    clock, routing = SteppedClock(), routing_of()
    detector = FailureDetector(clock)
    if is_known:
        detector.on_heartbeat(1, 7, list(beat().targets), routing)
    for _ in range(10):
        clock.advance(T / 2)
        detector.on_refused(beat(), routing)
    clock.advance(T / 2)
    assert word(detector, routing) is (LocalState.UPTODATE if is_known else None)
    assert detector.is_alive(1, T) == is_known
    clock.advance(T / 2)
    assert word(detector, routing) is LocalState.OFFLINE, "a silence is one, whenever it began"


@pytest.mark.parametrize(
    "refused",
    [
        beat(incarnation=8),
        beat(incarnation=6),
        beat(chain_version=2),
        beat(local_state=pb.LOCAL_OFFLINE),
        beat(leaving=True),
    ],
    ids=["a later process", "an earlier process", "another version", "its disk has failed", "its end"],
)
def test_one_that_would_get_no_lease_is_silent(refused: pb.HeartbeatRequest) -> None:
    clock, routing = SteppedClock(), routing_of()
    detector = FailureDetector(clock)
    detector.on_heartbeat(1, 7, list(beat().targets), routing)
    clock.advance(T)
    detector.on_refused(refused, routing)
    assert word(detector, routing) is LocalState.OFFLINE


def test_it_revives_nobody() -> None:
    """R9: neither a process that has ended, nor a target whose demotion is on its way."""
    clock, routing = SteppedClock(), routing_of()
    detector = FailureDetector(clock)
    detector.on_heartbeat(1, 7, list(beat().targets), routing)
    clock.advance(T)
    assert word(detector, routing) is LocalState.OFFLINE
    detector.mark_dead(1, 7)
    detector.on_refused(beat(), routing)
    assert word(detector, routing) is LocalState.OFFLINE and not detector.is_alive(1, T)


def test_a_node_that_is_refused_before_it_was_heard_is_waited_for_anew() -> None:
    """I15: it may know of a newer store of the managers. Once the wait is over, nothing begins it again."""
    clock = SteppedClock()
    stale = StaleStoreDetector(routing_of(), clock)
    for _ in range(5):
        clock.advance(0.9 * T)
        stale.on_refused(1)
    clock.advance(0.9 * T)
    stale._is_known = True
    assert not stale.confirmed
    clock.advance(0.2 * T)
    assert stale.confirmed
    stale.on_refused(1)
    assert stale.confirmed
