"""Moves: a chain gives the place of one target to another one, or only gains or loses one. Pure.

The state of a move is the chain itself, so it goes on wherever a manager or a node was stopped:

    the removed target is no member any more       the move is done, also if the added one has died since
    the added target is no member                  it becomes one, offline and empty
    the added target does not serve yet            wait: the table of transitions leads it to serve
    nothing is added, the removed target serves,   wait: what does not serve may have been lost; the next plan takes
    and another member does not                    that one away
    another member serves damaged chunks           wait: the removed target may have their only good copies
    an administrator takes another one out of      wait: it was accepted because the removed target serves
    service, which serves still
    the removed target serves in the place of one  wait: it could not leave before that one returns
    that an administrator has taken out of it
    the removed target is a member                 it is marked as leaving
    the removed target is leaving                  wait: it goes when enough others serve
    nothing is removed, the added target serves    the move is done
"""

import enum
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from threefs.ids import ChainId, NodeId, TargetId
from threefs.routing import Chain, PublicState, Routing
from threefs.wire import manager_pb2 as pb

#: Moves under way that only take targets off one disk.
MAX_EMPTYING = 2
NO_TARGET, NO_NODE = TargetId(0), NodeId(0)


@dataclass(frozen=True, slots=True)
class MoveBounds:
    """Moves under way of one disk."""

    filling: int = 1  # that fill it
    feeding: int = 2  # that read it to fill another one


@dataclass(frozen=True, slots=True)
class Move:
    """A change of the members of one chain. At most one of the two targets is 0."""

    chain_id: ChainId
    added: TargetId = NO_TARGET
    added_node: NodeId = NO_NODE
    removed: TargetId = NO_TARGET

    def __post_init__(self) -> None:
        assert self.added or self.removed, "a move adds a target, or takes one away"
        assert bool(self.added) == bool(self.added_node), "a target is added on a node"


class MoveStep(enum.Enum):
    """The next step of a move."""

    ADD = enum.auto()
    MARK_LEAVING = enum.auto()
    WAIT = enum.auto()
    DONE = enum.auto()


def next_step(move: Move, chain: Chain, *, is_damaged: bool) -> MoveStep:
    """`is_damaged`: whether a target that would stay serves, and has chunks that are damaged or lost."""
    added, removed = chain.state(move.added), chain.state(move.removed)
    if move.removed and removed is None:
        return MoveStep.DONE
    if move.added and added is None:
        return MoveStep.ADD
    if move.added and added is not PublicState.SERVING:
        return MoveStep.WAIT
    if removed is None:
        return MoveStep.DONE
    if not is_sensible(move, chain):
        return MoveStep.WAIT
    return MoveStep.WAIT if is_damaged or chain.leaving is not None else MoveStep.MARK_LEAVING


def is_sensible(move: Move, chain: Chain) -> bool:
    """Whether a move that has not begun may begin: a target that serves goes only from a whole chain."""
    if move.added or chain.leaving is not None or chain.state(move.removed) is not PublicState.SERVING:
        return True
    return all(member.state is PublicState.SERVING for member in chain.members)


def is_possible(move: Move, routing: Routing) -> bool:
    """Whether there is what the move takes away, and a node for what it adds."""
    if move.removed and routing.chains[move.chain_id].state(move.removed) is None:
        return False
    node = routing.nodes.get(move.added_node)
    return not move.added or (node is not None and not node.draining)


def draining_nodes(routing: Routing) -> set[NodeId]:
    """The nodes whose targets are to go to others."""
    return {node.node_id for node in routing.nodes.values() if node.draining}


def has_other_replicas(routing: Routing) -> bool:
    """Whether some chain has another number of members than its table has replicas."""
    return any(
        len(routing.chains[chain_id].members) != replicas
        for table_id, replicas in routing.replicas.items()
        for chain_id in routing.tables[table_id]
    )


def reverted(move: Move, chain: Chain) -> Move | None:
    """The move that undoes this one, as long as it takes nothing away: None if nothing has changed for it. Call it only
    for a move that `can_revert`."""
    if not is_under_way(move, chain):
        return None
    return Move(move.chain_id, removed=move.added)


def can_revert(move: Move, chain: Chain) -> bool:
    """Whether the chain keeps all its copies without this move: what it adds does not serve yet."""
    if not is_under_way(move, chain):
        return True
    if move.removed and chain.state(move.removed) is None:
        return False  # the added one has served, and may have died since
    return bool(move.added) and chain.leaving is None and chain.state(move.added) is not PublicState.SERVING


def is_under_way(move: Move, chain: Chain) -> bool:
    """Whether the chain has changed for it already."""
    if move.added:
        return chain.state(move.added) is not None
    return chain.leaving is not None


def is_resyncing(chain: Chain) -> bool:
    """Whether a target of the chain is being brought up to date. Others that live are offline until that has ended."""
    return any(member.state is PublicState.SYNCING for member in chain.members)


def is_left_out(move: Move, chain: Chain) -> bool:
    """Whether the added target is offline, or is to be filled and is not although others serve: an administrator holds
    it, for example."""
    state = chain.state(move.added)
    return state is PublicState.OFFLINE or (state is PublicState.WAITING and bool(chain.serving))


def is_at_work(move: Move, chain: Chain) -> bool:
    """Whether a move under way goes on as fast as disks allow. Else it waits for a chain that does not serve, for the
    resync of another member, or for members that may never come back."""
    state = chain.state(move.added)
    waits = state is not PublicState.SYNCING and is_resyncing(chain)
    return bool(chain.serving) and (not move.added or (state is not PublicState.SERVING and not waits))


def startable(moves: Mapping[ChainId, Move], routing: Routing, limits: MoveBounds) -> list[Move]:
    """The moves that may go on: those under way, and of the others, in the order of their chains, as many as keep to
    the bounds per disk. A chain that does not serve waits."""
    bounds = {_Work.FILLING: limits.filling, _Work.FEEDING: limits.feeding, _Work.EMPTYING: MAX_EMPTYING}
    load: Counter[tuple[_Work, NodeId]] = Counter()
    found: list[Move] = []
    waiting: list[Move] = []
    for chain_id in sorted(moves):
        move, chain = moves[chain_id], routing.chains[chain_id]
        if is_under_way(move, chain):
            found.append(move)
            if is_at_work(move, chain):
                load.update(_work_of(move, routing))
        elif chain.serving and is_sensible(move, chain):
            waiting.append(move)
    for move in waiting:
        work = _work_of(move, routing)
        if all(load[kind, node] < bounds[kind] for kind, node in work):
            found.append(move)
            load.update(work)
    return found


class _Work(enum.Enum):
    """The kinds of work that a move makes for a disk."""

    FILLING = enum.auto()
    FEEDING = enum.auto()
    EMPTYING = enum.auto()  # without a copy that was made for it


def _work_of(move: Move, routing: Routing) -> list[tuple[_Work, NodeId]]:
    if move.added:
        tail = routing.chains[move.chain_id].tail  # ships the chunks
        fed = [] if tail is None else [(_Work.FEEDING, routing.targets[tail].node_id)]
        return [(_Work.FILLING, move.added_node), *fed]
    removed = routing.targets.get(move.removed)  # none: its record has gone already, and the move is done
    return [] if removed is None else [(_Work.EMPTYING, removed.node_id)]


def broken_disks(chain_id: ChainId, routing: Routing) -> list[NodeId]:
    """The disks whose target of the chain does not serve."""
    members = routing.chains[chain_id].members
    return [routing.targets[m.target_id].node_id for m in members if m.state is not PublicState.SERVING]


def target_on(node_id: NodeId, chain_id: ChainId, routing: Routing) -> TargetId:
    """The target of the chain on that disk; of a copy that is lacking 0."""
    members = routing.chains[chain_id].members
    return next((m.target_id for m in members if routing.targets[m.target_id].node_id == node_id), NO_TARGET)


def from_wire(message: pb.Move) -> Move:
    return Move(
        ChainId(message.chain_id),
        TargetId(message.added_target),
        NodeId(message.added_node),
        TargetId(message.removed_target),
    )


def to_wire(move: Move) -> pb.Move:
    return pb.Move(
        chain_id=move.chain_id,
        added_target=move.added,
        added_node=move.added_node,
        removed_target=move.removed,
    )
