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
Known = Mapping[TargetId, LocalState | None]

_ORDER = (SERVING, SYNCING, WAITING, LASTSRV, OFFLINE)


def next_chain(chain: Chain, known: Known) -> Chain:
    """The chain after all that the table says has happened, one version on; the same object if nothing has.

    A return that would only begin the resync of another target anew waits until that one has ended.
    """
    members = chain.members
    while (following := _step(members, known)) != members:
        members = following
    if members == chain.members or (_resyncs(chain.members) and _only_waits(chain.members, members)):
        return chain
    return Chain(chain.chain_id, chain.version + 1, members)


def accept_loss(chain: Chain, chosen: TargetId, known: Known, alive: AbstractSet[TargetId]) -> Chain:
    """The chain after an administrator has given up what only its lost targets have: `chosen` goes on with what it has,
    and the others are brought up to date from it. `alive` are the targets that could serve, whatever they keep.

    Raises InvalidArgument where nothing has to be given up, or `chosen` cannot serve.
    """
    states = {member.target_id: member.state for member in chain.members}
    if SERVING in states.values():
        raise InvalidArgument(f"chain {chain.chain_id} is served: nothing of it is lost")
    for target, state in states.items():
        if state is LASTSRV and _lives(target, known):
            raise InvalidArgument(f"target {target} served chain {chain.chain_id} last, and is back: nothing is lost")
    if chosen not in states:
        raise InvalidArgument(f"target {chosen} is not in chain {chain.chain_id}")
    if chosen not in alive:
        raise InvalidArgument(f"target {chosen} cannot serve now: its process does not run, or its disk has failed")
    others = tuple(ChainMember(member.target_id, OFFLINE) for member in chain.members if member.target_id != chosen)
    return Chain(chain.chain_id, chain.version + 1, (ChainMember(chosen, SERVING), *others))


def _step(members: tuple[ChainMember, ...], known: Known) -> tuple[ChainMember, ...]:
    """Each row of the table once."""
    states = {member.target_id: member.state for member in members}
    dying = _bury(states, known)
    _return_lastsrv(states, members, known)
    _catch_up(states, members, known)
    ordered = [target for target in states if target not in dying] + dying
    return tuple(ChainMember(target, state) for state in _ORDER for target in ordered if states[target] is state)


def _bury(states: dict[TargetId, PublicState], known: Known) -> list[TargetId]:
    """What the dead become; those that go to the end of the chain."""
    serving = [target for target, state in states.items() if state is SERVING]
    dead = [target for target in serving if known.get(target) is LocalState.OFFLINE]
    gone = []
    if any(_lives(target, known) for target in serving):
        gone = dead
    elif dead == serving:
        for target in dead:
            states[target] = LASTSRV
    gone += [
        target
        for target, state in states.items()
        if state in (SYNCING, WAITING) and known.get(target) is LocalState.OFFLINE
    ]
    for target in gone:
        states[target] = OFFLINE
    return gone


def _return_lastsrv(states: dict[TargetId, PublicState], members: tuple[ChainMember, ...], known: Known) -> None:
    if SERVING in states.values():
        return
    lastsrv = [member.target_id for member in members if states[member.target_id] is LASTSRV]
    first = next((target for target in lastsrv if _lives(target, known)), None)
    if first is not None:
        for target in lastsrv:
            states[target] = SERVING if target == first else OFFLINE


def _catch_up(states: dict[TargetId, PublicState], members: tuple[ChainMember, ...], known: Known) -> None:
    targets = [member.target_id for member in members]
    served = any(states[target] is SERVING and _lives(target, known) for target in targets)
    for target in targets:
        state, local = states[target], known.get(target)
        if state is SYNCING and served and local is LocalState.UPTODATE:
            states[target] = SERVING
        elif (state is SYNCING and SERVING not in states.values()) or (state is OFFLINE and _lives(target, known)):
            states[target] = WAITING
    if served and SYNCING not in states.values():
        first = next((t for t in targets if states[t] is WAITING and _lives(t, known)), None)
        if first is not None:
            states[first] = SYNCING


def _lives(target: TargetId, known: Known) -> bool:
    return known.get(target) in (LocalState.UPTODATE, LocalState.ONLINE)


def _resyncs(members: tuple[ChainMember, ...]) -> bool:
    return any(member.state is SYNCING for member in members)


def _only_waits(before: tuple[ChainMember, ...], after: tuple[ChainMember, ...]) -> bool:
    """Whether nothing but offline and waiting has changed."""
    return [m for m in before if m.state not in (WAITING, OFFLINE)] == [
        m for m in after if m.state not in (WAITING, OFFLINE)
    ]
