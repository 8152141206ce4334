"""A sweep looks at chains that may have changed, and at no others."""

import dataclasses

import pytest
from threefs_manager.chains.steady_chains import SteadyChains

from threefs.ids import ChainId, NodeId, TargetId
from threefs.routing import Chain, ChainMember, Hold, LocalState, PublicState, Routing, Target

SERVING, SYNCING, OFFLINE = PublicState.SERVING, PublicState.SYNCING, PublicState.OFFLINE
UPTODATE, ONLINE = LocalState.UPTODATE, LocalState.ONLINE
ONE, TWO = ChainId(1), ChainId(2)


def member(number: int, state: PublicState = SERVING, *, leaving: bool = False) -> ChainMember:
    return ChainMember(TargetId(number), state, leaving)


def chain(chain_id: ChainId, *members: ChainMember, version: int = 1) -> Chain:
    return Chain(chain_id, version, members or tuple(member(10 * chain_id + n) for n in (1, 2)))


def routing_of(*chains: Chain) -> Routing:
    targets = {m.target_id: Target(m.target_id, NodeId(1), one.chain_id) for one in chains for m in one.members}
    return Routing(1, "c", {}, targets, {one.chain_id: one for one in chains}, {})


ROUTING = routing_of(chain(ONE), chain(TWO))


def all_steady() -> SteadyChains:
    steady = SteadyChains()
    for one in ROUTING.chains.values():
        steady.on_evaluation(one, ROUTING, {m.target_id: UPTODATE for m in one.members}, None)
    return steady


def sweep(steady: SteadyChains, routing: Routing = ROUTING, *silent: int, links_fail: bool = False) -> set[ChainId]:
    return steady.to_sweep(routing, map(TargetId, silent), links_fail=links_fail)


def test_a_chain_that_was_never_looked_at_is() -> None:
    assert sweep(SteadyChains()) == {ONE, TWO}
    assert sweep(all_steady()) == set()


def test_a_silence_is_looked_at_every_time() -> None:
    steady = all_steady()
    for _ in range(2):
        assert sweep(steady, ROUTING, 21) == {TWO}
    assert sweep(steady, ROUTING, 99) == set(), "a target that is forgotten"


def test_while_links_fail_and_once_more_all_are_looked_at() -> None:
    steady = all_steady()
    assert sweep(steady, links_fail=True) == {ONE, TWO}
    assert sweep(steady) == {ONE, TWO}, "none was looked at since"


@pytest.mark.parametrize(
    ("members", "known"),
    [
        ((member(11), member(12, SYNCING)), UPTODATE),
        ((member(11), member(12, OFFLINE)), UPTODATE),
        ((member(11), member(12, leaving=True)), UPTODATE),
        ((member(11), member(12)), ONLINE),
        ((member(11), member(12)), None),
    ],
)
def test_what_is_not_well_is_looked_at_again(members: tuple[ChainMember, ...], known: LocalState | None) -> None:
    one = chain(ONE, *members)
    steady, routing = SteadyChains(), routing_of(one)
    steady.on_evaluation(one, routing, {TargetId(11): UPTODATE, TargetId(12): known}, None)
    assert sweep(steady, routing) == {ONE}


def test_a_chain_that_a_member_has_to_leave_is_looked_at_again() -> None:
    steady = all_steady()
    steady.on_evaluation(ROUTING.chains[ONE], ROUTING, dict.fromkeys(map(TargetId, (11, 12)), UPTODATE), TargetId(12))
    assert sweep(steady) == {ONE}


def test_of_a_newer_routing_the_chains_that_differ_are_looked_at() -> None:
    moved = dataclasses.replace(ROUTING, chains={**ROUTING.chains, TWO: chain(TWO, version=2)})
    assert sweep(all_steady(), moved) == {TWO}
    kept = {**ROUTING.targets, TargetId(12): dataclasses.replace(ROUTING.targets[TargetId(12)], store_id=7)}
    assert sweep(all_steady(), dataclasses.replace(ROUTING, targets=kept)) == {ONE}
    assert sweep(all_steady(), dataclasses.replace(ROUTING, version=2)) == set()
    assert sweep(all_steady(), dataclasses.replace(ROUTING, chains={TWO: ROUTING.chains[TWO]})) == set()


def test_a_chain_with_a_held_target_is_looked_at_again() -> None:
    held = dataclasses.replace(ROUTING.targets[TargetId(11)], hold=Hold.OFFLINE)
    routing = dataclasses.replace(ROUTING, targets={**ROUTING.targets, TargetId(11): held})
    steady = SteadyChains()
    for one in routing.chains.values():
        steady.on_evaluation(one, routing, {m.target_id: UPTODATE for m in one.members}, None)
    assert sweep(steady, routing) == {ONE}, "it leaves when enough others serve"
