"""The table of transitions, by enumeration of all chains of up to three targets and all that may be known of them."""

import itertools
from collections.abc import Iterator

import pytest
from threefs_manager.chains.transitions import (
    Observed,
    accept_loss,
    add_member,
    mark_leaving,
    must_give_way,
    next_chain,
)

from threefs.errors import InvalidArgument
from threefs.ids import ChainId, TargetId
from threefs.routing import Chain, ChainMember, LocalState, PublicState

SERVING, SYNCING, WAITING = PublicState.SERVING, PublicState.SYNCING, PublicState.WAITING
LASTSRV, OFFLINE = PublicState.LASTSRV, PublicState.OFFLINE
UPTODATE, ONLINE, DEAD = LocalState.UPTODATE, LocalState.ONLINE, LocalState.OFFLINE


def chain(*states: PublicState) -> Chain:
    return Chain(ChainId(1), 5, tuple(ChainMember(TargetId(n), state) for n, state in enumerate(states, 1)))


def after(states: tuple[PublicState, ...], *observed: LocalState | None) -> list[tuple[int, PublicState]]:
    result = next_chain(chain(*states), {TargetId(n): local for n, local in enumerate(observed, 1)})
    return [(member.target_id, member.state) for member in result.members]


def everything(*, moving: bool = False) -> Iterator[tuple[Chain, Observed, Chain]]:
    """With `moving`, chains of which one member is leaving."""
    for length in (1, 2, 3):
        for states, leaving in itertools.product(itertools.product(PublicState, repeat=length), range(1, length + 1)):
            if leaving > 1 and not moving:
                continue
            for locals_ in itertools.product([None, *LocalState], repeat=length):
                before = chain(*states)
                if moving:
                    before = mark_leaving(before, TargetId(leaving))
                observed = {TargetId(n): local for n, local in enumerate(locals_, 1)}
                yield before, observed, next_chain(before, observed)


def test_a_dead_one_goes_to_the_end() -> None:
    assert after((SERVING, SERVING, SERVING), DEAD, UPTODATE, UPTODATE) == [(2, SERVING), (3, SERVING), (1, OFFLINE)]
    assert after((SERVING, SERVING, SERVING), DEAD, None, UPTODATE) == [(2, SERVING), (3, SERVING), (1, OFFLINE)]


def test_r7_no_target_is_put_out_while_no_other_is_known_to_live() -> None:
    assert after((SERVING, SERVING), DEAD, None) == [(1, SERVING), (2, SERVING)]
    assert after((SERVING, SERVING), DEAD, DEAD) == [(1, LASTSRV), (2, LASTSRV)]
    assert after((SERVING,), DEAD) == [(1, LASTSRV)]


def test_the_first_that_returns_serves_alone() -> None:
    assert after((LASTSRV, LASTSRV, OFFLINE), DEAD, ONLINE, ONLINE) == [(2, SERVING), (3, SYNCING), (1, OFFLINE)]
    assert after((LASTSRV, OFFLINE), None, ONLINE) == [(2, WAITING), (1, LASTSRV)]


def test_a_returning_one_syncs_and_then_serves() -> None:
    assert after((SERVING, OFFLINE, OFFLINE), UPTODATE, ONLINE, ONLINE) == [(1, SERVING), (2, SYNCING), (3, WAITING)]
    assert after((SERVING, SYNCING, WAITING), UPTODATE, UPTODATE, ONLINE) == [(1, SERVING), (2, SERVING), (3, SYNCING)]


def test_a_return_does_not_disturb_the_resync_of_another() -> None:
    before = chain(SERVING, SYNCING, OFFLINE)
    observed = {TargetId(1): UPTODATE, TargetId(2): ONLINE, TargetId(3): ONLINE}
    assert next_chain(before, observed) is before


def test_i7_serving_or_lastsrv_never_both_vanish() -> None:
    for before, observed, result in everything():
        if any(member.state in (SERVING, LASTSRV) for member in before.members):
            assert any(member.state in (SERVING, LASTSRV) for member in result.members), (before, observed)


def test_the_version_rises_by_one_exactly_when_something_changes() -> None:
    for before, observed, result in everything():
        if result is before:
            continue
        assert result.version == before.version + 1 and result.members != before.members, (before, observed)
        assert next_chain(result, observed) is result, (before, observed)
        assert {m.target_id for m in result.members} == {m.target_id for m in before.members}
        assert sum(m.state is SYNCING for m in result.members) <= max(
            1, sum(m.state is SYNCING for m in before.members)
        )


def test_nothing_moves_of_which_nothing_is_known() -> None:
    for before, observed, result in everything():
        for member in before.members:
            now = result.state(member.target_id)
            if observed[member.target_id] is not None or now is member.state:
                continue
            others_serve = any(m.state is SERVING for m in result.members)
            assert (member.state, now) in {(LASTSRV, OFFLINE), (SYNCING, WAITING)}, (before, observed, result)
            assert others_serve or now is WAITING


# ---- an oracle of its own: moves of single targets, as in the checked model of the protocol

State = tuple[tuple[int, PublicState], ...]  # sorted by target: the order of a chain is judged apart


def single_moves(state: State, observed: Observed) -> set[State]:
    """All that the model lets the manager do in one step."""
    now = dict(state)
    serving = [t for t, s in now.items() if s is SERVING]
    alive = {t for t in now if observed[TargetId(t)] in (UPTODATE, ONLINE)}
    dead = {t for t in now if observed[TargetId(t)] is DEAD}
    found = set()

    def move(**changes: PublicState) -> None:
        found.add(tuple(sorted({**now, **{int(name[1:]): s for name, s in changes.items()}}.items())))

    for target, public in now.items():
        name = f"t{target}"
        if public is SERVING and target in dead and any(other in alive for other in serving):
            move(**{name: OFFLINE})
        if public in (SYNCING, WAITING) and target in dead:
            move(**{name: OFFLINE})
        if public is LASTSRV and not serving and target in alive:
            others = {f"t{t}": OFFLINE for t, s in now.items() if s is LASTSRV and t != target}
            move(**{**others, name: SERVING})
        if public is SYNCING and observed[TargetId(target)] is UPTODATE and any(t in alive for t in serving):
            move(**{name: SERVING})
        if public is SYNCING and not serving:
            move(**{name: WAITING})
        if public is OFFLINE and target in alive:
            move(**{name: WAITING})
        if public is WAITING and target in alive and SYNCING not in now.values() and any(t in alive for t in serving):
            move(**{name: SYNCING})
    if serving and all(target in dead for target in serving):
        move(**{f"t{target}": LASTSRV for target in serving})
    return found


def reachable(state: State, observed: Observed) -> set[State]:
    found, waiting = {state}, [state]
    while waiting:
        for following in single_moves(waiting.pop(), observed) - found:
            found.add(following)
            waiting.append(following)
    return found


def test_every_result_is_reached_by_single_moves_of_the_model_and_none_is_left_undone() -> None:
    for before, observed, result in everything():
        start = tuple(sorted((int(m.target_id), m.state) for m in before.members))
        end = tuple(sorted((int(m.target_id), m.state) for m in result.members))
        assert end in reachable(start, observed), (before, observed, result)
        left = single_moves(end, observed)
        if any(state is SYNCING for _, state in end):  # a return waits for the end of another one's resync
            left = {s for s in left if _without_waits(s) != _without_waits(end)}
        assert not left, (before, observed, result, left)


def _without_waits(state: State) -> list[tuple[int, PublicState]]:
    return [(target, public) for target, public in state if public not in (WAITING, OFFLINE)]


def test_members_stand_in_the_order_of_their_states() -> None:
    order = (SERVING, SYNCING, WAITING, LASTSRV, OFFLINE)
    for before, observed, result in everything():
        begun = [order.index(member.state) for member in before.members]
        if result is not before and begun == sorted(begun):  # as every chain is that this table has made
            places = [order.index(member.state) for member in result.members]
            assert places == sorted(places), (before, observed, result)
            kept = [m.target_id for m in result.members if m.state is SERVING]
            served = [m.target_id for m in before.members if m.state is SERVING and m.target_id in kept]
            assert kept[: len(served)] == served, "those that go on serving keep their order"


def test_the_numbers_of_targets_mean_nothing() -> None:
    for before, observed, result in everything():
        turned = {m.target_id: TargetId(10 - m.target_id) for m in before.members}

        def renamed(chain: Chain, names: dict[TargetId, TargetId]) -> tuple[ChainMember, ...]:
            return tuple(ChainMember(names[m.target_id], m.state) for m in chain.members)

        other = Chain(before.chain_id, before.version, renamed(before, turned))
        outcome = next_chain(other, {turned[target]: local for target, local in observed.items()})
        assert outcome.members == renamed(result, turned) and outcome.version == result.version, (before, observed)


def test_the_dead_stand_behind_all_others_that_are_out() -> None:
    assert after((SERVING, SERVING, OFFLINE), DEAD, UPTODATE, None) == [(2, SERVING), (3, OFFLINE), (1, OFFLINE)]
    assert after((SERVING, WAITING, OFFLINE), UPTODATE, DEAD, None) == [(1, SERVING), (3, OFFLINE), (2, OFFLINE)]


@pytest.mark.slow
def test_a_loss_is_accepted_only_where_nothing_serves_nor_can_come_back_by_itself() -> None:
    """I7 and R7, by enumeration: `chosen` serves alone only by this word, and only if no lastsrv target is there."""
    accepted = 0
    for before, observed, _ in everything():
        alive = {target for target, local in observed.items() if local in (UPTODATE, ONLINE)}
        for chosen in (1, 2, 3, 4):
            target = TargetId(chosen)
            states = {member.target_id: member.state for member in before.members}
            back = any(state is LASTSRV and observed[t] in (UPTODATE, ONLINE) for t, state in states.items())
            allowed = SERVING not in states.values() and not back and target in alive
            if not allowed:
                with pytest.raises(InvalidArgument):
                    accept_loss(before, target, observed, alive)
                continue
            after = accept_loss(before, target, observed, alive)
            accepted += 1
            assert after.version == before.version + 1 and after.serving == (target,)
            assert {m.target_id: m.state for m in after.members if m.target_id != target} == {
                t: OFFLINE for t in states if t != target
            }
    assert accepted > 100


def test_a_lastsrv_target_that_lost_its_store_may_be_chosen() -> None:
    """All have put their stores aside: they live, but what is known of them is that they have nothing to serve with."""
    before = chain(LASTSRV, LASTSRV)
    observed = {TargetId(1): DEAD, TargetId(2): DEAD}
    after = accept_loss(before, TargetId(2), observed, {TargetId(1), TargetId(2)})
    assert [(m.target_id, m.state) for m in after.members] == [(2, SERVING), (1, OFFLINE)]


# ---- moves


@pytest.mark.slow
def test_a_leaving_target_goes_when_it_is_out_and_another_one_serves() -> None:
    for before, observed, result in everything(moving=True):
        leaving = before.leaving
        assert leaving is not None
        gone = {m.target_id for m in before.members} - {m.target_id for m in result.members}
        assert gone <= {leaving}, (before, observed)
        if gone:
            assert result.serving, (before, observed)
            assert observed[leaving] is DEAD or before.state(leaving) not in (SERVING, SYNCING), (before, observed)
        else:
            assert result.leaving == leaving, (before, observed)


def test_a_leaving_target_keeps_what_only_it_has() -> None:
    for before, observed, result in everything(moving=True):
        if any(member.state in (SERVING, LASTSRV) for member in before.members):
            assert any(member.state in (SERVING, LASTSRV) for member in result.members), (before, observed)
    leaving = mark_leaving(chain(LASTSRV, OFFLINE), TargetId(1))
    result = next_chain(leaving, {TargetId(1): ONLINE, TargetId(2): ONLINE})
    assert result.serving == (TargetId(1),) and result.leaving == TargetId(1)


def test_a_leaving_target_that_is_out_never_returns() -> None:
    for before, observed, result in everything(moving=True):
        leaving = before.leaving
        if leaving is not None and before.state(leaving) is OFFLINE:
            assert result.state(leaving) in (None, OFFLINE), (before, observed)


def test_an_added_target_is_offline_at_the_end() -> None:
    added = add_member(chain(SERVING, OFFLINE), TargetId(9))
    assert added.version == 6 and added.members[-1] == ChainMember(TargetId(9), OFFLINE)
    assert next_chain(added, {TargetId(1): UPTODATE, TargetId(9): ONLINE}).state(TargetId(9)) is SYNCING


def test_a_target_gives_way_only_while_enough_others_serve() -> None:
    leaving = mark_leaving(chain(SERVING, SERVING, SYNCING), TargetId(1))
    assert must_give_way(leaving, 1) and not must_give_way(leaving, 2)
    assert not must_give_way(chain(SERVING, SERVING), 1)
    assert not must_give_way(mark_leaving(chain(SERVING, OFFLINE), TargetId(1)), 1)
