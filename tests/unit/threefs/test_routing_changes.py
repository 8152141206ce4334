"""What has changed between two snapshots leads from the one to the other, also on the wire, and two in one."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threefs import routing_changes
from threefs.errors import ProtocolError
from threefs.ids import ChainId, NodeId, TableId, TargetId
from threefs.routing import Chain, ChainMember, Hold, Node, NodeKind, PublicState, Routing, Target
from threefs.wire import manager_pb2 as pb

FEW = st.integers(1, 4)


@st.composite
def snapshots(draw: st.DrawFn) -> Routing:
    """Of few ids and values, so that two of them have much in common. Their versions are set by the caller."""
    nodes = draw(st.dictionaries(FEW, FEW))
    targets = draw(st.dictionaries(FEW, st.tuples(FEW, st.sampled_from(Hold))))
    chains = draw(st.dictionaries(FEW, st.tuples(FEW, st.sampled_from(PublicState), st.booleans())))
    tables = draw(st.dictionaries(FEW, st.tuples(st.lists(FEW), st.integers(0, 2), st.integers(0, 2))))
    return Routing(
        0,
        "c",
        {NodeId(n): Node(NodeId(n), NodeKind.STORAGE, "", f"host:{port}", 1) for n, port in nodes.items()},
        {TargetId(t): Target(TargetId(t), NodeId(n), ChainId(1), hold=hold) for t, (n, hold) in targets.items()},
        {
            ChainId(c): Chain(ChainId(c), version, (ChainMember(TargetId(1), state, leaving),))
            for c, (version, state, leaving) in chains.items()
        },
        {TableId(t): tuple(map(ChainId, chains)) for t, (chains, _, _) in tables.items()},
        lease_ms=draw(FEW),
        min_replicas={TableId(t): least for t, (_, least, _) in tables.items() if least},
        default_table=TableId(draw(FEW)),
        replicas={TableId(t): count for t, (_, _, count) in tables.items() if count},
    )


@given(snapshots(), snapshots(), snapshots())
def test_changes_lead_from_one_snapshot_to_another(first: Routing, second: Routing, third: Routing) -> None:
    second, third = dataclasses.replace(second, version=1), dataclasses.replace(third, version=2)
    one, other = routing_changes.between(first, second), routing_changes.between(second, third)
    assert one.applied_to(first) == second
    assert one.then(other).applied_to(first) == third
    assert routing_changes.from_wire(routing_changes.to_wire(one.then(other))) == one.then(other)


def test_only_what_differs_is_sent() -> None:
    members = (ChainMember(TargetId(1), PublicState.SERVING),)
    chains = {ChainId(n): Chain(ChainId(n), 1, members) for n in range(1, 100)}
    old = Routing(7, "c", {}, {}, chains, {TableId(1): tuple(chains)}, min_replicas={TableId(1): 1})
    changed = {**chains, ChainId(5): Chain(ChainId(5), 2, members)}
    del changed[ChainId(6)]
    changes = routing_changes.between(old, dataclasses.replace(old, version=8, chains=changed))
    assert (changes.base_version, changes.changed.version) == (7, 8)
    assert list(changes.changed.chains) == [5] and changes.gone_chains == {6} and not changes.changed.tables
    assert changes.entries == 2 and routing_changes.entries_of(old) == 100


def test_a_state_that_is_not_known_is_an_error() -> None:
    member = pb.ChainMember(target_id=1, state=77)  # type: ignore[arg-type]
    message = pb.RoutingChanges(changed=pb.Routing(chains=[pb.Chain(chain_id=1, members=[member])]))
    with pytest.raises(ProtocolError, match="routing that cannot be understood"):
        routing_changes.from_wire(message)
