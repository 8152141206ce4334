"""`test_cluster_health.py` produces each reason."""

import pytest

from tests.harness.cluster_status import chain, found_in, routing_of, sound
from threefs.health import chain_health
from threefs.health.answers import Answers
from threefs.health.verdict import Severity
from threefs.wire import manager_pb2 as pb

S, O, Y, L = pb.SERVING, pb.OFFLINE, pb.SYNCING, pb.LASTSRV  # noqa: E741


@pytest.mark.parametrize(
    ("members", "state"),
    [((S, S, S), "full"), ((S, S, Y), "degraded"), ((S, O, Y), "below_minimum"), ((L, O, L), "unserved")],
)
def test_a_chain_is_in_one_state(members: tuple[pb.PublicState, ...], state: str) -> None:
    status = sound()
    status.chains[1].CopyFrom(chain(2, *members))
    copies = chain_health.chain_copies(Answers(status, routing_of(status)))
    assert [one.state for one in copies] == ["full", state]
    assert state in chain_health.CHAIN_STATES


def test_what_is_planned_is_no_reason() -> None:
    """A target that is filled for a move is one copy more; a node that drains while its targets move is at work."""
    status = sound()
    status.chains[0].members.add(target_id=1_000_000_001, state=pb.SYNCING)
    status.moves.add(chain_id=1, added_target=1_000_000_001, added_node=2, removed_target=301)
    status.nodes[2].node.draining = True
    assert found_in(status) == []
    del status.moves[:]
    assert {reason.code for reason in found_in(status)} == {"chain_degraded", "drain_stuck"}


def test_copies_that_are_being_added_or_removed_are_no_reason() -> None:
    status = sound()
    status.tables[0].replicas = 2
    assert found_in(status) == []
    status.tables[0].replicas = 4
    status.moves.add(chain_id=1, added_target=1_000_000_001, added_node=2)
    assert found_in(status) == []


@pytest.mark.parametrize(
    ("added", "states", "is_reported"),
    [
        (0, (S, S, S), False),
        (0, (S, S, O), False),
        (0, (O, S, S), True),
        (404, (S, S, S), False),
        (401, (S, S, S, Y), False),
        (401, (S, S, S, O), False),
        (401, (S, S, Y, O), True),
        (401, (S, S, S, S), True),
        (401, (L, O, O, O), True),
    ],
)
def test_a_move_that_waits_hides_no_drain_that_is_stuck(
    added: int, states: tuple[pb.PublicState, ...], is_reported: bool
) -> None:
    """While one proceeds, the moves of the node may only be not planned yet."""
    status = sound()
    status.nodes[2].node.draining = True
    status.tables[0].replicas = 3
    status.chains[0].CopyFrom(chain(1, *states))
    del status.chains[1].members[0]
    status.moves.add(chain_id=1, added_target=added, added_node=4 if added else 0, removed_target=301)
    found = {reason.code: reason for reason in found_in(status) if reason.code.endswith("_stuck")}
    found.pop("moves_stuck", None)
    assert set(found) == ({"drain_stuck", "copies_stuck"} if is_reported else set())
    if is_reported:
        assert "1 of its targets does not move" in found["drain_stuck"].summary
        assert "1 chain has fewer copies than the 3" in found["copies_stuck"].summary


@pytest.mark.parametrize(
    ("why", "is_reported"),
    [("sound", False), ("damaged", True), ("lost", True), ("unknown", True), ("leaving", True), ("held", True)],
)
def test_a_removal_that_waits_hides_no_drain_that_is_stuck(why: str, is_reported: bool) -> None:
    """Whatever it waits for may never be: that a damaged copy which stays becomes sound, for example."""
    status = sound()
    status.nodes[2].node.draining = True
    status.moves.add(chain_id=1, removed_target=301)
    reports = status.nodes[0].targets
    match why:
        case "damaged":
            reports[0].unrepaired_chunks = 1
        case "lost":
            reports[0].lost_chunks = 1
        case "unknown":
            del reports[0]
        case "leaving":
            status.chains[0].members[2].leaving = True
    routing = routing_of(status)
    if why == "held":
        routing.targets[0].hold = pb.HOLD_FORCED
    assert len([*chain_health.stuck_drains(Answers(status, routing))]) == is_reported


def test_a_target_that_was_held_and_is_replaced_is_not_waited_for() -> None:
    """Its record stays until its node answers, which may never be: nothing could be brought back into service."""
    answers = Answers(sound(), routing_of(sound()))
    answers.routing.targets.add(target_id=999, node_id=2, hold=pb.HOLD_OFFLINE)
    assert not [*chain_health.held_targets(answers)]


def test_a_chain_is_named_under_one_reason_only() -> None:
    status = sound()
    status.chains[0].CopyFrom(chain(1, S, S, O))
    status.chains[1].CopyFrom(chain(2, S, O, O))
    named = [reason for reason in found_in(status) if reason.code.startswith("chain_")]
    assert [reason.code for reason in named] == ["chain_below_minimum", "chain_degraded"]
    assert "chain 1 " not in named[0].summary and "chain 2 " not in named[1].summary


@pytest.mark.parametrize("minimum", [2, 1])
def test_a_target_whose_disk_is_full_needs_room_and_no_start(minimum: int) -> None:
    status = sound()
    status.tables[0].min_replicas = minimum
    status.chains[1].CopyFrom(chain(2, S, O, O))
    (full,) = (report for report in status.nodes[1].targets if report.target_id == 202)
    full.read_only = True
    (reason,) = (each for each in found_in(status) if each.code.startswith("chain_"))
    assert "the disks of these targets are full: target 202 of node 2 (offline);" in reason.advice
    other = "start the nodes of the missing targets:" if minimum == 2 else "bring back"
    assert f"; {other} target 302 of node 3 (offline);" in reason.advice
    status.chains[1].CopyFrom(chain(2, S, O, S) if minimum == 1 else chain(2, S, O))
    (reason,) = (each for each in found_in(status) if each.code.startswith("chain_"))
    assert reason.advice.startswith("remove files") and other not in reason.advice


def test_copies_in_one_failure_domain_are_reported_while_there_are_domains_enough() -> None:
    status = sound()
    status.nodes.add(node=pb.Node(node_id=4, kind=pb.STORAGE, address="host:4", domain="rack-1"), alive=True)
    status.nodes[-1].release = "0.2.0"
    status.chains[1].members[1].target_id = 402
    (found,) = found_in(status)
    assert (found.code, found.severity) == ("copies_in_one_domain", Severity.WARN)
    assert found.summary.endswith("several copies in one failure domain, which may fail together: chain 2 in rack-1")
    assert "threefs rebalance" in found.advice
    status.moves.add(chain_id=2, added_target=1_000_000_001, added_node=2, removed_target=402)
    assert found_in(status) == []
    del status.moves[:]
    status.nodes[1].node.domain = "rack-1"
    assert found_in(status) == [], "three copies cannot be apart in two domains"


def test_long_lists_are_cut() -> None:
    status = sound()
    status.chains.extend(chain(number, S, S, O) for number in range(3, 40))
    (degraded,) = found_in(status)
    assert degraded.summary.startswith("37 chains have fewer") and degraded.summary.endswith("and 29 more")
