"""What becomes of a chain when its targets die, return and catch up. Pure: the whole table in one place.

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

Whatever is not in the table stays as it is, and so does everything of which nothing is known yet. Rule R7: only a
lastsrv target may serve alone, and a serving one is put offline only while another one is known to live. For then
whatever was acknowledged is on a target that serves. When all serving ones are dead, each of them has everything that
was acknowledged: a version is durable on all of them before that.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from threefs.errors import InvalidArgument
from threefs.ids import TargetId
from threefs.routing import Chain, ChainMember, LocalState, PublicState

SERVING, SYNCING, WAITING = PublicState.SERVING, PublicState.SYNCING, PublicState.WAITING
LASTSRV, OFFLINE = PublicState.LASTSRV, PublicState.OFFLINE

#: What is known of each target: OFFLINE means dead or broken, None that nothing is known yet.
Observed = Mapping[TargetId, LocalState | None]

_ORDER = (SERVING, SYNCING, WAITING, LASTSRV, OFFLINE)


def next_chain(chain: Chain, observed: Observed) -> Chain:
    """The chain after all that the table says has happened, one version on; the same object if nothing has.

    A return that would only begin the resync of another target anew waits until that one has ended.
    """
    members = chain.members
    while (following := _step(members, observed)) != members:
        members = following
    if members == chain.members or (_is_resyncing(chain.members) and _only_waiting_changed(chain.members, members)):
        return chain
    return Chain(chain.chain_id, chain.version + 1, members)


def accept_loss(chain: Chain, chosen: TargetId, observed: Observed, alive: AbstractSet[TargetId]) -> Chain:
    """The chain after an administrator has given up what only its lost targets have: `chosen` goes on with what it has,
    and the others are brought up to date from it. `alive` are the targets that could serve, whatever they keep.

    Raises InvalidArgument where nothing has to be given up, or `chosen` cannot serve.
    """
    states = {member.target_id: member.state for member in chain.members}
    if SERVING in states.values():
        raise InvalidArgument(f"chain {chain.chain_id} is served: nothing of it is lost")
    for target, state in states.items():
        if state is LASTSRV and _is_alive(target, observed):
            raise InvalidArgument(f"target {target} served chain {chain.chain_id} last, and is back: nothing is lost")
    if chosen not in states:
        raise InvalidArgument(f"target {chosen} is not in chain {chain.chain_id}")
    if chosen not in alive:
        raise InvalidArgument(f"target {chosen} cannot serve now: its process does not run, or its disk has failed")
    others = tuple(ChainMember(member.target_id, OFFLINE) for member in chain.members if member.target_id != chosen)
    return Chain(chain.chain_id, chain.version + 1, (ChainMember(chosen, SERVING), *others))


def _step(members: tuple[ChainMember, ...], observed: Observed) -> tuple[ChainMember, ...]:
    """Each row of the table once."""
    states = {member.target_id: member.state for member in members}
    last = _remove_dead(states, observed)
    _return_lastsrv(states, members, observed)
    _catch_up(states, members, observed)
    ordered = [target for target in states if target not in last] + last
    return tuple(ChainMember(target, state) for state in _ORDER for target in ordered if states[target] is state)


def _remove_dead(states: dict[TargetId, PublicState], observed: Observed) -> list[TargetId]:
    """What the dead become; those that go to the end of the chain."""
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


def _catch_up(states: dict[TargetId, PublicState], members: tuple[ChainMember, ...], observed: Observed) -> None:
    targets = [member.target_id for member in members]
    served = any(states[target] is SERVING and _is_alive(target, observed) for target in targets)
    for target in targets:
        state, local = states[target], observed.get(target)
        if state is SYNCING and served and local is LocalState.UPTODATE:
            states[target] = SERVING
        elif (state is SYNCING and SERVING not in states.values()) or (
            state is OFFLINE and _is_alive(target, observed)
        ):
            states[target] = WAITING
    if served and SYNCING not in states.values():
        first = next((t for t in targets if states[t] is WAITING and _is_alive(t, observed)), None)
        if first is not None:
            states[first] = SYNCING


def _is_alive(target: TargetId, observed: Observed) -> bool:
    return observed.get(target) in (LocalState.UPTODATE, LocalState.ONLINE)


def _is_resyncing(members: tuple[ChainMember, ...]) -> bool:
    return any(member.state is SYNCING for member in members)


def _only_waiting_changed(before: tuple[ChainMember, ...], after: tuple[ChainMember, ...]) -> bool:
    """Whether nothing but offline and waiting has changed."""
    return [m for m in before if m.state not in (WAITING, OFFLINE)] == [
        m for m in after if m.state not in (WAITING, OFFLINE)
    ]
