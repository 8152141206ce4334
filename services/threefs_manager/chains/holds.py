"""Targets that an administrator takes out of service: what becomes of their chains, and who stays out.

A held target gives its lease up by itself, and the table of transitions puts it out as one that is dead; the primary
grants it no lease either. When it is out it counts as unknown, so that it stays out until the hold ends. A head that
only rotates returns at once, behind the others.
"""

import dataclasses
from collections.abc import Callable, Sequence

from threefs.errors import InvalidArgument, NotFound
from threefs.ids import NodeId, TargetId
from threefs.routing import Chain, Hold, PublicState, Routing, Target
from threefs.wire import manager_pb2 as pb
from threefs_manager.routing_publisher import RoutingPublisher
from threefs_manager.store.cluster_store import Store, Writer

MAX_HELD = 4096  # in one call
#: The newest report of a target, if there is one.
ReportOf = Callable[[TargetId], pb.TargetReport | None]

_OUT_OF_SERVICE = (Hold.OFFLINE, Hold.FORCED)
_IN_WRITE_PATH = (PublicState.SERVING, PublicState.SYNCING)
_AUTHORITIES = (PublicState.SERVING, PublicState.LASTSRV)


def held_out(chain: Chain, routing: Routing) -> list[TargetId]:
    """The members that are out of the write path, and stay out."""
    return [
        member.target_id
        for member in chain.members
        if member.state not in _IN_WRITE_PATH and routing.hold(member.target_id) in _OUT_OF_SERVICE
    ]


def nodes_out(routing: Routing) -> set[NodeId]:
    """The nodes with a member that an administrator has taken out of service: their disks may go at any moment."""
    held = (target for target in routing.targets.values() if target.hold in _OUT_OF_SERVICE)
    return {target.node_id for target in held if not routing.is_removed(target)}


def giving_way(chain: Chain, routing: Routing) -> list[TargetId]:
    """The serving members that leave the write path now, because an administrator holds them."""
    held = [target for target in chain.serving if routing.hold(target) is not Hold.NONE]
    minimum = routing.minimum(chain.chain_id) if held else 1
    return [target for target in held if routing.yields(target, chain, minimum)]


def stands_in(target: TargetId, chain: Chain, routing: Routing) -> bool:
    """Whether a member serves in the place of those that administrators hold: with one less, the chain would take no
    writes before they return. One on a disk that drains need not return."""
    if all(routing.node_of(held).draining for held in held_out(chain, routing)):
        return False
    return target in chain.serving and len(chain.serving) <= routing.minimum(chain.chain_id)


def plan(routing: Routing, targets: Sequence[TargetId], hold: Hold) -> list[pb.HeldChain]:
    """The effect on the chains of these targets. Raises NotFound, and InvalidArgument for what takes a chain below
    its minimum, or its last copies away, unless the hold is forced."""
    if not 1 <= len(targets) <= MAX_HELD:
        raise InvalidArgument(f"1 to {MAX_HELD} targets are taken out of service at once, not {len(targets)}")
    for target in targets:
        known = routing.targets.get(target)
        if known is None or routing.is_removed(known):
            raise NotFound(f"the cluster has no target {target}; `threefs chain ls` lists them")
        if hold is Hold.ROTATE and routing.chains[known.chain_id].head != target:
            raise InvalidArgument(f"target {target} is not the head of chain {known.chain_id}: only a head rotates")
    wanted = {**routing.targets, **{t: dataclasses.replace(routing.targets[t], hold=hold) for t in targets}}
    after = dataclasses.replace(routing, targets=wanted)
    minimums = routing.minimums()
    found = []
    for chain_id in sorted({routing.targets[target].chain_id for target in targets}):
        chain = routing.chains[chain_id]
        # Not one that a move takes away: it goes as soon as the others are enough, or is needed by those that wait.
        serving = sum(after.hold(target) is Hold.NONE for target in chain.staying)
        needed = max(1, minimums.get(chain_id, 1))
        stops = any(chain.state(t) in _AUTHORITIES and routing.targets[t].chain_id == chain_id for t in targets)
        if hold in (Hold.OFFLINE, Hold.ROTATE) and stops and serving < needed:
            raise InvalidArgument(refusal(routing, chain, serving, needed))
        found.append(pb.HeldChain(chain_id=chain_id, serving=serving, needed=needed, members=len(chain.members)))
    return found


def refusal(routing: Routing, chain: Chain, serving: int, needed: int) -> str:
    last = [member.target_id for member in chain.members if member.state is PublicState.LASTSRV]
    if last:
        return (
            f"{routing.shown_chain(chain.chain_id)} has no copy in service, and only "
            f"{', '.join(map(routing.shown_target, last))} had all that was written: start one of these first, or give "
            f"up what only they have (`threefs chain accept-loss {chain.chain_id}`)"
        )
    effect = "its reads and writes would wait" if not serving else "its writes would wait"
    if all(chain.state(member.target_id) is PublicState.SERVING for member in chain.members):
        advice = (
            "Take fewer targets out at once, give the chain more copies first (`threefs table set-replicas`), or move "
            "its targets to other nodes (`threefs node drain`)"
        )
    else:
        advice = f"Bring its other targets back first (`threefs chain show {chain.chain_id}`)"
    return (
        f"{routing.shown_chain(chain.chain_id)} would have {serving} of {len(chain.members)} copies in service, and a "
        f"write needs {needed}: {effect}. {advice}"
    )


async def hold_targets(
    store: Store, publisher: RoutingPublisher, report_of: ReportOf, request: pb.HoldTargetsRequest
) -> list[pb.HeldChain]:
    """Store the hold of these targets. Raises NotFound, InvalidArgument."""
    targets, hold = [TargetId(target) for target in request.targets], _hold(request.hold)
    if request.dry_run:
        return plan(publisher.routing, targets, hold)

    attempted: list[list[pb.HeldChain]] = []

    async def write(writer: Writer) -> list[pb.HeldChain]:
        if attempted and all(_is_done(writer.routing, target, hold) for target in targets):
            return attempted[-1]  # by an earlier attempt of unknown outcome
        # As the store has it: another call may be about to take the other copies of a chain out of service.
        planned = plan(writer.routing, targets, hold)
        attempted.append(planned)
        for target in targets:
            stored = writer.routing.targets[target]
            if stored.hold is not hold:
                held_store_id = 0 if hold is Hold.NONE else _held_store(stored, report_of(target))
                writer.put_target(dataclasses.replace(stored, hold=hold, held_store_id=held_store_id))
        return planned

    planned, routing = await store.change(write)
    publisher.publish(routing)
    return planned


def _held_store(stored: Target, report: pb.TargetReport | None) -> int:
    """The identity of the store that is there when the hold begins: another one is that of a new disk. A damaged store
    may have given way to an empty one since the target served last, which is not stored before that one is filled."""
    if stored.hold in _OUT_OF_SERVICE and stored.held_store_id:
        return stored.held_store_id  # only the force of the hold changes, and the new disk may be there already
    return (report.store_id if report is not None else 0) or stored.store_id


def _is_done(routing: Routing, target: TargetId, hold: Hold) -> bool:
    """Whether the hold is stored, or a rotation is over, of a target that could be held so before."""
    known = routing.targets.get(target)
    if known is None:
        return False
    return known.hold is hold or (hold is Hold.ROTATE and routing.chains[known.chain_id].head != target)


def _hold(number: int) -> Hold:
    """Raises InvalidArgument."""
    try:
        return Hold(number)
    except ValueError:
        raise InvalidArgument(f"{number} is no kind of hold that this manager knows: upgrade it first") from None
