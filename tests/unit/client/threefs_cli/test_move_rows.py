"""How far moves are, as people and programs read it."""

from threefs_cli.cluster_state import ClusterState
from threefs_cli.move_rows import about, move_rows, remaining_s, summary, summary_text

from threefs.wire import manager_pb2 as pb


def chain(chain_id: int, *members: tuple[int, "pb.PublicState"], leaving: int = 0) -> pb.Chain:
    rows = [pb.ChainMember(target_id=target, state=state, leaving=target == leaving) for target, state in members]
    return pb.Chain(chain_id=chain_id, version=1, members=rows)


def state(*, more: bool = False) -> ClusterState:
    """Chain 1 waits, 2 is being filled, 3 waits for its process, 4 loses its old target, 5 loses one only, 6 needs both
    until another one returns."""
    s, y, w = pb.SERVING, pb.SYNCING, pb.WAITING
    moves = [pb.Move(chain_id=c, added_target=1000 + c, added_node=4, removed_target=100 + c) for c in (1, 2, 3, 4, 6)]
    moves.append(pb.Move(chain_id=5, removed_target=105))
    progress = [pb.MoveProgress(chain_id=c, total_bytes=1000) for c in (1, 3)]
    progress.append(pb.MoveProgress(chain_id=2, copied_bytes=400, total_bytes=1000, bytes_per_s=100))
    progress.append(pb.MoveProgress(chain_id=6, copied_bytes=990, total_bytes=1000))
    progress.append(pb.MoveProgress(chain_id=4, copied_bytes=990, total_bytes=1000, bytes_per_s=100))
    status = pb.GetStatusReply(
        moves=reversed(moves),
        move_progress=progress,
        more_moves=more,
        chains=[
            chain(1, (101, s)),
            chain(2, (102, s), (1002, y)),
            chain(3, (103, s), (1003, w)),
            chain(4, (104, s), (1004, s), leaving=104),
            chain(5, (105, s), (205, s), leaving=105),
            chain(6, (106, s), (1006, s), (206, pb.OFFLINE)),
        ],
    )
    return ClusterState(status, pb.Routing(targets=[pb.Target(target_id=100 + n, node_id=1) for n in range(1, 7)]))


def test_each_move_says_its_stage_its_bytes_and_its_end() -> None:
    rows = move_rows(state())
    assert [row["stage"] for row in rows] == ["queued", "filling", "waiting", "leaving", "leaving", "waiting"]
    assert [row["remaining_s"] for row in rows] == [None, 6, None, None, None, None]
    assert [row["copied_bytes"] for row in rows] == [0, 400, 0, 1000, 0, 1000], "one that serves has all"
    assert (rows[0]["removed_node"], rows[0]["added_node"], rows[4]["added_node"]) == (1, 4, None)


def test_all_moves_together_are_one_line() -> None:
    found = summary(state(more=True), move_rows(state()))
    assert (found["under_way"], found["queued"], found["to_leave"], found["remaining_s"]) == (5, 1, 3, 26)
    assert summary_text(found) == (
        "5 moves under way, 1 queued: 2.3 KiB of 4.9 KiB copied, 100 B/s, about 26 s left; more moves follow"
    )
    empty = ClusterState(pb.GetStatusReply(), pb.Routing())
    assert summary_text(summary(empty, [])) == "nothing moves"
    planning = ClusterState(pb.GetStatusReply(more_moves=True), pb.Routing())
    assert summary_text(summary(planning, [])) == "nothing moves now; more moves are being planned"
    held_up = summary(ClusterState(pb.GetStatusReply(rebalance_awaits=[4, 7]), pb.Routing()), [])
    assert not held_up["more_follow"] and held_up["rebalance_awaits"] == [4, 7]
    assert summary_text(held_up) == (
        "nothing moves now; the rebalance goes on when the targets of nodes 4, 7 are in service again"
    )


def test_no_end_is_told_of_moves_that_wait_when_all_is_copied() -> None:
    """They may wait for ever, and "about 0 s" were left."""
    known = state()
    for move in [move for move in known.status.moves if move.chain_id in (1, 2, 3)]:
        known.status.moves.remove(move)
    found = summary(known, move_rows(known))
    assert (found["to_leave"], found["remaining_s"]) == (3, None)
    assert summary_text(found) == "3 moves under way, 0 queued: all is copied, and 3 targets wait to leave"
    del known.status.moves[:-1]
    assert summary_text(summary(known, move_rows(known))).endswith("all is copied, and 1 target waits to leave")


def test_an_end_is_told_when_a_rate_is_known() -> None:
    assert remaining_s(5, 5, 0) is None and remaining_s(1, 5, 0) is None and remaining_s(0, 10, 3) == 4
    assert [about(s) for s in (0, 119, 120, 7200, 3 * 86_400)] == ["0 s", "119 s", "2 min", "2 h", "3 days"]
    unknown = {"under_way": 1, "queued": 0, "to_leave": 0, "more_follow": False, "copied_bytes": 0, "total_bytes": 9}
    assert "cannot be estimated" in summary_text(unknown | {"bytes_per_s": 0, "remaining_s": None})
