from collections import Counter

import pytest

from benchmarks.grow.moved_bytes import Moved, held, is_at_rest, least_targets
from threefs.ids import NodeId
from threefs.wire import manager_pb2 as pb

MOVE = pb.Move(chain_id=1, added_target=9, added_node=3, removed_target=1)


def status(copied: int | None = None, used: int = 0, *, moves: bool = True) -> pb.GetStatusReply:
    """Chain 1 is on nodes 1 and 2; a target of node 3 is being filled."""
    reports = {1: (1, 100), 2: (2, 100), 3: (9, used)}
    return pb.GetStatusReply(
        nodes=[
            pb.NodeStatus(node=pb.Node(node_id=node), targets=[pb.TargetReport(target_id=target, used_bytes=length)])
            for node, (target, length) in reports.items()
        ],
        chains=[pb.Chain(chain_id=1, version=1, members=[pb.ChainMember(target_id=target) for target in (1, 2)])],
        moves=[MOVE] if moves else [],
        move_progress=[] if copied is None else [pb.MoveProgress(chain_id=1, copied_bytes=copied, total_bytes=100)],
    )


def test_a_move_counts_with_the_bytes_of_its_target_at_the_end() -> None:
    moved = Moved()
    for each in (status(), status(40, 40), status(None, 100, moves=False)):
        moved.look(each)
    assert (moved.bytes, moved.again) == (100, 0)
    assert moved.over(1) == pytest.approx(1.0)


def test_what_is_copied_again_counts_twice() -> None:
    moved = Moved()
    for each in (status(60, 60), status(0, 0), status(50, 50), status(None, 100, moves=False)):
        moved.look(each)
    assert (moved.bytes, moved.again) == (160, 60)
    assert moved.over(1) == pytest.approx(1.6)


def test_nodes_that_join_need_their_share_and_those_that_leave_give_all() -> None:
    three = Counter({NodeId(1): 4, NodeId(2): 4, NodeId(3): 4})
    assert least_targets(three, {NodeId(number) for number in range(1, 7)}) == 6
    assert least_targets(three, {NodeId(1), NodeId(2)}) == 4


def test_targets_are_counted_by_their_node_and_rest_means_that_nothing_moves() -> None:
    assert held(status()) == {1: 1, 2: 1}
    assert not is_at_rest(status())
    assert not is_at_rest(pb.GetStatusReply(more_moves=True))
    assert is_at_rest(pb.GetStatusReply())
