import dataclasses

import pytest

from tests.harness.memory_storage import make_routing
from threefs import routing
from threefs.errors import ProtocolError
from threefs.ids import ChainId, NodeId, TableId, TargetId
from threefs.routing import Chain, ChainMember, Node, NodeKind, PublicState, Routing, Target
from threefs.wire import manager_pb2 as pb

S, Y, W, L, O = PublicState  # noqa: E741


def chain(*states: PublicState) -> Chain:
    return Chain(ChainId(1), 5, tuple(ChainMember(TargetId(101 + i), state) for i, state in enumerate(states)))


def test_head_and_tail_are_serving_targets() -> None:
    assert chain(S, S, S).head == 101
    assert chain(S, S, S).tail == 103
    assert chain(S, S, Y).tail == 102
    assert chain(L, O).head is None
    assert chain(L, O).tail is None


def test_a_chain_without_a_serving_target_is_not_served() -> None:
    gone = dataclasses.replace(chain(L, O), chain_id=ChainId(2))
    known = make_routing(chains=3)
    assert not known.unserved
    assert dataclasses.replace(known, chains={**known.chains, gone.chain_id: gone}).unserved == {2}


def test_writes_end_at_the_last_target_that_they_reach() -> None:
    """Rule R1: it is asked what is committed."""
    assert chain(S, S, S).last == 103
    assert chain(S, S, Y).last == 103
    assert chain(S, O, Y).last == 103
    assert chain(S, S, O).last == 102
    assert chain(L, O).last is None


def test_writes_reach_serving_and_syncing_targets_only() -> None:
    members = chain(S, S, Y, O)
    assert members.successor(TargetId(101)) == ChainMember(TargetId(102), S)
    assert members.successor(TargetId(102)) == ChainMember(TargetId(103), Y)
    assert members.successor(TargetId(103)) is None
    assert members.successor(TargetId(104)) is None
    assert members.state(TargetId(104)) is O
    assert members.state(TargetId(999)) is None


def test_a_snapshot_survives_the_wire() -> None:
    snapshot = Routing(
        version=9,
        cluster_id="c",
        nodes={
            NodeId(1): Node(NodeId(1), NodeKind.STORAGE, "host-a", "127.0.0.1:7001", 2**63),
            NodeId(7): Node(NodeId(7), NodeKind.META, "", "127.0.0.1:7100", 1),
            NodeId(8): Node(NodeId(8), NodeKind.META, "", "", 1),
        },
        targets={TargetId(101): Target(TargetId(101), NodeId(1), ChainId(1))},
        chains={ChainId(1): chain(S, Y, O)},
        tables={TableId(1): (ChainId(1),), TableId(2): (ChainId(1),)},
        min_replicas={TableId(1): 2},
        replicas={TableId(1): 3},
        default_table=TableId(2),
    )
    assert routing.from_wire(routing.to_wire(snapshot)) == snapshot
    assert snapshot.address_of(TargetId(101)) == "127.0.0.1:7001"
    assert snapshot.meta_addresses() == ("127.0.0.1:7100",), "one without an address has not registered yet"


def test_errors_name_the_nodes() -> None:
    found = make_routing()
    target = found.chains[ChainId(2)].members[0].target_id
    assert found.shown_target(target) == f"target {target} of node {found.targets[target].node_id}"
    assert found.shown_target(TargetId(999)) == "target 999"
    assert found.shown_chain(ChainId(2)) == "chain 2 on nodes 2, 3, 1"
    assert found.shown_chain(ChainId(99)) == "chain 99"


def test_routing_of_an_unknown_kind_is_refused_in_words() -> None:
    message = pb.Routing(version=1, nodes=[pb.Node(node_id=1)])
    with pytest.raises(ProtocolError, match="cannot be understood: 0 is not a valid NodeKind"):
        routing.from_wire(message)
