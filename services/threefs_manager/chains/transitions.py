"""The table of transitions: what a chain becomes when its targets die, return and catch up. Pure.

    public     what is known of the target         becomes
    serving    dead, and another serving one lives  offline, at the end of the chain
    serving    dead, and so are all serving ones    lastsrv, each of them
    lastsrv    lives, and nothing serves            serving, alone; the other lastsrv become offline
    syncing    lives, and is equal to its           serving, behind the serving ones
               predecessor
    syncing    dead                                 offline
    syncing    lives, but nothing serves            waiting
    offline    lives                                waiting
    waiting    dead                                 offline
    waiting    lives, a serving one lives, and      syncing
               nothing else is syncing

    lastsrv    an administrator accepts the loss    offline; the target that was chosen serves alone
               of what only such ones have

    no member  a move adds it to the chain          offline, at the end
    any        a move takes it out of the chain     the same state, and leaving
    leaving    serves, and is needed for long       serving, and stays
    offline    is leaving, and another one serves   no member
    waiting    is leaving                           offline

A leaving target gives its lease up as soon as enough others serve (`must_give_way`), and is then put offline as one
that is dead; one that syncs gets no lease any more. So a target that serves never leaves the chain while it holds a
lease, nor while it is the only one.

A state that is not in the table stays, and so does the state of a target of which nothing is known yet.

Rule R7: only a lastsrv target may serve alone, and a serving target is put offline only while another serving one is
known to live. So every acknowledged version is on a target that serves. When all serving targets are dead, each of them
has every acknowledged version, because a version is durable on all of them before it is acknowledged.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from threefs.errors import InvalidArgument
from threefs.ids import TargetId
from threefs.routing import Chain, ChainMember, LocalState, PublicState

SERVING, SYNCING, WAITING = PublicState.SERVING, PublicState.SYNCING, PublicState.WAITING
LASTSRV, OFFLINE = PublicState.LASTSRV, PublicState.OFFLINE

#: The word for each target: OFFLINE means dead or broken, None that nothing is known yet.
Observed = Mapping[TargetId, LocalState | None]

_ORDER = (SERVING, SYNCING, WAITING, LASTSRV, OFFLINE)


def next_chain(chain: Chain, observed: Observed) -> Chain:
    """The chain after every row of the table that applies, with the next version; the same object if none applies.

    Each new version restarts a resync. So a target that only returns, to wait, changes nothing while another one syncs.
    """
    members = chain.members
    while (following := _step(members, observed)) != members:
        members = following
    if members == chain.members or (_is_resyncing(chain.members) and _only_waiting_changed(chain.members, members)):
        return chain
    after = Chain(chain.chain_id, chain.version + 1, members)
    _check_step(chain, after)
    return after


def _check_step(before: Chain, after: Chain) -> None:
    """Invariants of every row of the table (I5, I7, R7)."""
    was = {member.target_id: member.state for member in before.members}
    states = [member.state for member in after.members]
    assert _targets(after) == _targets(before) or SERVING in states, "a target leaves while another one serves"
    assert after.version == before.version + 1, "I5: the version of a chain only rises"
    assert _targets(after) | _leaving(before) == _targets(before), "only a move takes a target out of its chain"
    assert not _has_authority(before) or _has_authority(after), "I7: a chain keeps a serving or a lastsrv target"
    assert states.count(SYNCING) <= max(1, [*was.values()].count(SYNCING)), "one target of a chain syncs at a time"
    assert states == sorted(states, key=_ORDER.index), "serving, syncing, waiting, lastsrv, offline: in this order"
    became = {state: {was[m.target_id] for m in after.members if m.state is state} for state in (SERVING, LASTSRV)}
    assert became[LASTSRV] <= {SERVING, LASTSRV}, "R7: only a target that has served becomes lastsrv"
    if became[SERVING] and SERVING not in was.values():
        assert LASTSRV in became[SERVING], "R7: only a lastsrv target serves alone"


def _has_authority(chain: Chain) -> bool:
    """Whether some target is known to have everything that was acknowledged."""
    return any(member.state in (SERVING, LASTSRV) for member in chain.members)


def _targets(chain: Chain) -> set[TargetId]:
    return {member.target_id for member in chain.members}


def _leaving(chain: Chain) -> set[TargetId]:
    return {member.target_id for member in chain.members if member.leaving}


def add_member(chain: Chain, target: TargetId) -> Chain:
    """The chain with one more member, which has nothing yet."""
    assert target not in _targets(chain), "a target is a member of a chain once"
    return Chain(chain.chain_id, chain.version + 1, (*chain.members, ChainMember(target, OFFLINE)))


def mark_leaving(chain: Chain, target: TargetId) -> Chain:
    """The chain with this member leaving it. One at a time leaves."""
    assert target in _targets(chain) and chain.leaving is None, "one member of a chain leaves at a time"
    members = tuple(ChainMember(m.target_id, m.state, leaving=m.target_id == target) for m in chain.members)
    return Chain(chain.chain_id, chain.version + 1, members)


def keep_leaving(chain: Chain) -> Chain:
    """The chain with its leaving member as one that stays. Nobody has to know of it: the member serves all the time."""
    assert chain.leaving in chain.serving, "a member that is out does not return"
    members = tuple(ChainMember(member.target_id, member.state) for member in chain.members)
    return Chain(chain.chain_id, chain.version + 1, members)


def must_give_way(chain: Chain, min_replicas: int) -> bool:
    """Whether the leaving member goes now: it does not serve yet, or the chain takes writes of clients without it."""
    if chain.leaving is None:
        return False
    return chain.state(chain.leaving) is SYNCING or len(chain.staying) >= min_replicas


def check_unserved(chain: Chain) -> None:
    """Raises InvalidArgument for a chain that has lost nothing."""
    if chain.serving:
        raise InvalidArgument(f"chain {chain.chain_id} is served: nothing of it is lost, and nothing is to be accepted")


def accept_loss(chain: Chain, chosen: TargetId, observed: Observed, alive: AbstractSet[TargetId]) -> Chain:
    """The chain after an administrator has given up what only its lost targets have: `chosen` serves alone with what it
    has, and the others resync from it. `alive` are the targets that could serve, whatever is on their disks.

    Raises InvalidArgument if nothing has to be given up, or if `chosen` cannot serve.
    """
    check_unserved(chain)
    states = {member.target_id: member.state for member in chain.members}
    for target, state in states.items():
        if state is LASTSRV and _is_alive(target, observed):
            raise InvalidArgument(
                f"target {target}, which served chain {chain.chain_id} last, is alive: nothing is lost"
            )
    if chosen not in states:
        raise InvalidArgument(
            f"target {chosen} is not in chain {chain.chain_id}, whose targets are {_format_ids(states)}"
        )
    if chosen not in alive:
        raise InvalidArgument(f"target {chosen} cannot serve now: its process does not run, or its disk has failed")
    others = tuple(
        ChainMember(member.target_id, OFFLINE, member.leaving) for member in chain.members if member.target_id != chosen
    )
    after = Chain(chain.chain_id, chain.version + 1, (ChainMember(chosen, SERVING), *others))
    assert _targets(after) == _targets(chain), "a transition neither adds nor removes a target"
    return after


def _step(members: tuple[ChainMember, ...], observed: Observed) -> tuple[ChainMember, ...]:
    """Apply each row of the table once."""
    states = {member.target_id: member.state for member in members}
    leaving = {member.target_id for member in members if member.leaving}
    last = _remove_dead(states, observed)
    _return_lastsrv(states, members, observed)
    _catch_up(states, leaving, observed)
    ordered = [target for target in states if target not in last] + last
    if SERVING in states.values():
        ordered = [target for target in ordered if target not in leaving or states[target] is not OFFLINE]
    return tuple(
        ChainMember(target, state, target in leaving)
        for state in _ORDER
        for target in ordered
        if states[target] is state
    )


def _remove_dead(states: dict[TargetId, PublicState], observed: Observed) -> list[TargetId]:
    """Apply the rows of dead targets; returns those that go to the end of the chain."""
    serving = [target for target, state in states.items() if state is SERVING]
    dead = [target for target in serving if observed.get(target) is LocalState.OFFLINE]
    demoted = []
    if any(_is_alive(target, observed) for target in serving):
        demoted = dead
    elif dead == serving:
        for target in dead:
            states[target] = LASTSRV
    demoted += [
        target
        for target, state in states.items()
        if state in (SYNCING, WAITING) and observed.get(target) is LocalState.OFFLINE
    ]
    for target in demoted:
        states[target] = OFFLINE
    return demoted


def _return_lastsrv(states: dict[TargetId, PublicState], members: tuple[ChainMember, ...], observed: Observed) -> None:
    if SERVING in states.values():
        return
    lastsrv = [member.target_id for member in members if states[member.target_id] is LASTSRV]
    first = next((target for target in lastsrv if _is_alive(target, observed)), None)
    if first is not None:
        for target in lastsrv:
            states[target] = SERVING if target == first else OFFLINE


def _catch_up(states: dict[TargetId, PublicState], leaving: AbstractSet[TargetId], observed: Observed) -> None:
    served = any(state is SERVING and _is_alive(target, observed) for target, state in states.items())
    for target, state in states.items():
        if state is SYNCING and served and observed.get(target) is LocalState.UPTODATE:
            states[target] = SERVING
        elif (state is SYNCING and SERVING not in states.values()) or (
            state is OFFLINE and _is_alive(target, observed) and target not in leaving
        ):
            states[target] = WAITING
        elif state is WAITING and target in leaving:
            states[target] = OFFLINE
    if served and SYNCING not in states.values():
        first = next((t for t, state in states.items() if state is WAITING and _is_alive(t, observed)), None)
        if first is not None:
            states[first] = SYNCING


def _format_ids(targets: Iterable[TargetId]) -> str:
    return ", ".join(map(str, targets))


def _is_alive(target: TargetId, observed: Observed) -> bool:
    return observed.get(target) in (LocalState.UPTODATE, LocalState.ONLINE)


def _is_resyncing(members: tuple[ChainMember, ...]) -> bool:
    return any(member.state is SYNCING for member in members)


def _only_waiting_changed(before: tuple[ChainMember, ...], after: tuple[ChainMember, ...]) -> bool:
    """Whether the change concerns no target but offline and waiting ones."""
    return [m for m in before if m.state not in (WAITING, OFFLINE)] == [
        m for m in after if m.state not in (WAITING, OFFLINE)
    ]
