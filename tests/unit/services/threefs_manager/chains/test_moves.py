"""What a move needs next, and how many moves are under way at once."""

import pytest
from threefs_manager.chains import moves
from threefs_manager.chains.moves import Move, MoveBounds, MoveStep, startable

from threefs.ids import ChainId, NodeId, TargetId
from threefs.routing import EMPTY, Chain, ChainMember, Node, NodeKind, PublicState, Routing, Target

SERVING, SYNCING, OFFLINE = PublicState.SERVING, PublicState.SYNCING, PublicState.OFFLINE
MOVE = Move(ChainId(1), TargetId(9), NodeId(9), TargetId(1))


def chain(*members: tuple[int, PublicState], leaving: int = 0) -> Chain:
    return Chain(ChainId(1), 5, tuple(ChainMember(TargetId(t), s, t == leaving) for t, s in members))


def next_step(move: Move, chain: Chain, *, is_damaged: bool = False) -> MoveStep:
    return moves.next_step(move, chain, is_damaged=is_damaged)


def test_a_move_adds_waits_marks_waits_and_is_done() -> None:
    assert next_step(MOVE, chain((1, SERVING), (2, SERVING))) is MoveStep.ADD
    assert next_step(MOVE, chain((1, SERVING), (2, SERVING), (9, SYNCING))) is MoveStep.WAIT
    assert next_step(MOVE, chain((1, SERVING), (2, SERVING), (9, SERVING))) is MoveStep.MARK_LEAVING
    assert next_step(MOVE, chain((1, SERVING), (2, SERVING), (9, SERVING), leaving=1)) is MoveStep.WAIT
    assert next_step(MOVE, chain((2, SERVING), (9, SERVING))) is MoveStep.DONE


def test_nothing_leaves_before_the_added_target_serves_again() -> None:
    assert next_step(MOVE, chain((1, SERVING), (2, SERVING), (9, OFFLINE))) is MoveStep.WAIT


@pytest.mark.parametrize("state", [SERVING, OFFLINE])
def test_nothing_leaves_while_it_may_have_the_only_good_copy_of_a_chunk(state: PublicState) -> None:
    for move in (MOVE, Move(ChainId(1), removed=TargetId(1))):
        whole = chain((1, state), (2, SERVING), (9, SERVING))
        assert next_step(move, whole, is_damaged=True) is MoveStep.WAIT
        assert next_step(move, whole) is MoveStep.MARK_LEAVING
    gone = chain((2, SERVING), (9, SERVING))
    assert next_step(MOVE, gone, is_damaged=True) is MoveStep.DONE


def test_a_chain_may_only_gain_or_only_lose_a_target() -> None:
    gain, loss = Move(ChainId(1), TargetId(9), NodeId(9)), Move(ChainId(1), removed=TargetId(1))
    assert next_step(gain, chain((1, SERVING))) is MoveStep.ADD
    assert next_step(gain, chain((1, SERVING), (9, SERVING))) is MoveStep.DONE
    assert next_step(loss, chain((1, SERVING), (2, SERVING))) is MoveStep.MARK_LEAVING
    assert next_step(loss, chain((2, SERVING))) is MoveStep.DONE


def test_the_wire_keeps_a_move() -> None:
    assert moves.from_wire(moves.to_wire(MOVE)) == MOVE


def cluster(count: int) -> Routing:
    """Chains 1 to `count`, with a target on each of the nodes 1 and 2."""
    nodes = {NodeId(n): Node(NodeId(n), NodeKind.STORAGE, f"d{n}", f"h:{n}", 1) for n in (1, 2, 8, 9)}
    chains, targets = {}, {}
    for number in range(1, count + 1):
        members = [TargetId(100 + number), TargetId(200 + number)]
        for target in members:
            targets[target] = Target(target, NodeId(target // 100), ChainId(number))
        chains[ChainId(number)] = Chain(ChainId(number), 1, tuple(ChainMember(t, SERVING) for t in members))
    return Routing(1, "c", nodes, targets, chains, EMPTY.tables)


def to_node(chain_id: int, node: int) -> Move:
    return Move(ChainId(chain_id), TargetId(1000 + chain_id), NodeId(node), TargetId(100 + chain_id))


def test_one_disk_is_filled_by_one_move_at_a_time() -> None:
    wanted = {ChainId(n): to_node(n, 9) for n in (1, 2, 3)}
    assert startable(wanted, cluster(3), MoveBounds()) == [wanted[ChainId(1)]]
    assert startable(wanted, cluster(3), MoveBounds(filling=2)) == [wanted[ChainId(1)], wanted[ChainId(2)]]
    assert startable(wanted, cluster(3), MoveBounds(filling=3, feeding=3)) == list(wanted.values())
    wanted[ChainId(2)] = to_node(2, 8)
    assert startable(wanted, cluster(3), MoveBounds()) == [wanted[ChainId(1)], wanted[ChainId(2)]]


def test_one_disk_feeds_few_moves_at_a_time() -> None:
    wanted = {ChainId(n): to_node(n, 10 + n) for n in (1, 2, 3)}
    assert startable(wanted, cluster(3), MoveBounds()) == [wanted[ChainId(1)], wanted[ChainId(2)]]


def test_moves_under_way_go_on_whatever_the_bounds_say() -> None:
    routing = cluster(3)
    wanted = {ChainId(n): to_node(n, 9) for n in (1, 2, 3)}
    for number in (2, 3):
        known = routing.chains[ChainId(number)]
        added = ChainMember(wanted[ChainId(number)].added, SYNCING)
        routing.chains[ChainId(number)] = Chain(known.chain_id, 2, (*known.members, added))  # type: ignore[index]
    assert startable(wanted, routing, MoveBounds()) == [wanted[ChainId(2)], wanted[ChainId(3)]]


def test_a_chain_that_does_not_serve_waits() -> None:
    routing = cluster(1)
    lost = tuple(ChainMember(TargetId(t), PublicState.LASTSRV) for t in (101, 201))
    routing.chains[ChainId(1)] = Chain(ChainId(1), 2, lost)  # type: ignore[index]
    assert startable({ChainId(1): to_node(1, 9)}, routing, MoveBounds()) == []


def test_what_serves_goes_only_from_a_whole_chain() -> None:
    """What does not serve may be lost, and then the chain would have one copy less than it is to have."""
    loss = Move(ChainId(1), removed=TargetId(1))
    hurt = chain((1, SERVING), (2, SERVING), (3, OFFLINE))
    assert next_step(loss, hurt) is MoveStep.WAIT and not moves.is_sensible(loss, hurt)
    assert next_step(Move(ChainId(1), removed=TargetId(3)), hurt) is MoveStep.MARK_LEAVING
    begun = chain((1, SERVING), (2, SERVING), (3, OFFLINE), leaving=1)
    assert next_step(loss, begun) is MoveStep.WAIT and moves.is_sensible(loss, begun)


def test_a_move_is_taken_back_while_its_new_target_does_not_serve() -> None:
    gone = Move(ChainId(1), removed=TargetId(9))
    for members, back in (
        (((1, SERVING),), None),
        (((1, SERVING), (9, SYNCING)), gone),
        (((1, SERVING), (9, OFFLINE)), gone),
    ):
        assert moves.can_revert(MOVE, chain(*members)) and moves.reverted(MOVE, chain(*members)) == back
    assert not moves.can_revert(MOVE, chain((1, SERVING), (9, SERVING)))
    assert not moves.can_revert(MOVE, chain((1, SERVING), (2, SERVING), (9, OFFLINE), leaving=1))
    assert not moves.can_revert(Move(ChainId(1), removed=TargetId(1)), chain((1, SERVING), (2, SERVING), leaving=1))


def test_few_chains_at_a_time_lose_a_copy_on_one_disk() -> None:
    wanted = {ChainId(n): Move(ChainId(n), removed=TargetId(100 + n)) for n in (1, 2, 3)}
    assert startable(wanted, cluster(3), MoveBounds()) == [wanted[ChainId(1)], wanted[ChainId(2)]]
