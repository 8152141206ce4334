from dataclasses import replace

import pytest
from threefs_client.data.replica_selector import ReplicaSelector, choose

from tests.harness.memory_storage import make_routing
from threefs.errors import NotServing
from threefs.ids import TableId
from threefs.layout import FileLayout
from threefs.routing import EMPTY, ChainMember, PublicState

LAYOUT = FileLayout(64 << 10, TableId(1), stripe=2)


def test_a_file_resolves_to_the_serving_targets_of_its_chains() -> None:
    routing = make_routing()
    inode, shift, chunk_bytes, stripe, places = ReplicaSelector(routing).resolve(5, LAYOUT)
    assert (inode, shift, chunk_bytes, stripe) == (5, 16, 64 << 10, 2)
    chains = LAYOUT.chains(routing.tables[TableId(1)])
    assert [[target for _, target, _ in place] for place in places] == [
        list(routing.chains[chain].serving) for chain in chains
    ]
    assert all(endpoint.address == routing.address_of(target) for place in places for endpoint, target, _ in place)  # type: ignore[arg-type]
    assert len({endpoint for place in places for endpoint, _, _ in place}) == 3, "one endpoint per process"


def test_a_chain_that_is_not_served_has_no_replicas_and_the_others_of_the_stripe_have() -> None:
    routing = make_routing()
    chain, other = routing.chains.values()
    members = tuple(ChainMember(m.target_id, PublicState.LASTSRV) for m in chain.members)
    dead = replace(routing, chains={**routing.chains, chain.chain_id: replace(chain, members=members)})
    selector = ReplicaSelector(dead)
    places = selector.resolve(5, LAYOUT)[4]
    number = LAYOUT.chains(routing.tables[TableId(1)]).index(chain.chain_id)
    assert places[number] == () and [target for _, target, _ in places[1 - number]] == list(other.serving)
    shown = f"chain {chain.chain_id} on nodes 1, 2, 3 has no serving target"
    assert str(selector.not_serving(LAYOUT, 2 + number)) == shown


def test_a_table_that_is_not_known_yet() -> None:
    with pytest.raises(NotServing, match="not in the routing yet"):
        ReplicaSelector(EMPTY).resolve(5, LAYOUT)


def test_a_replica_that_serves_is_left_for_one_that_may_have_good_bytes() -> None:
    routing = make_routing()
    selector = ReplicaSelector(routing)
    chain = next(iter(routing.chains.values()))
    first, second, third = chain.serving
    assert selector.has_other_replica(first, (), ())
    assert selector.has_other_replica(first, {second}, ())
    assert not selector.has_other_replica(first, {second}, {third})
    assert not selector.has_other_replica(first, {second, third}, ())
    assert selector.has_other_replica(first, {first}, ()), "it was left before, and the other has failed since"
    gone = {number: target for number, target in routing.targets.items() if number != first}
    assert ReplicaSelector(replace(routing, targets=gone)).has_other_replica(first, {first}, ())
    members = tuple(replace(m, state=PublicState.OFFLINE) if m.target_id == first else m for m in chain.members)
    chains = {**routing.chains, chain.chain_id: replace(chain, members=members)}
    assert ReplicaSelector(replace(routing, chains=chains)).has_other_replica(first, {first, second, third}, ())


def test_the_least_loaded_is_chosen_and_penalties_end() -> None:
    selector = ReplicaSelector(make_routing())
    replicas = selector.resolve(5, LAYOUT)[4][0]
    first, second, third = replicas
    first[0].load, second[0].load, third[0].load = 5, 3, 9
    assert choose(replicas, set()) == second
    assert choose(replicas, {second[1]}) == first
    assert choose(replicas, {replica[1] for replica in replicas}) is None
    selector.penalize(second[0], now=10.0)
    selector.penalize(second[0], now=10.5)
    assert choose(replicas, set()) == first
    assert choose(replicas, {first[1], third[1]}) == second, "better than none"
    selector.clear_penalty(10.9)
    assert choose(replicas, set()) == first
    selector.clear_penalty(11.0)
    assert second[0].load == 3
    assert choose(replicas, set()) == second
