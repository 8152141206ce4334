"""What the scrubbers of the shared cluster have read."""

import time

from threefs_cli import scrub_commands

from tests.harness.command_line import CommandLine
from threefs.wire import manager_pb2 as pb

WAIT_S = 60.0


def passes(threefs: CommandLine, node: int) -> int:
    """Of the target of a node that was read least often."""
    rows = threefs.json("scrub", "status")["targets"]
    return min(int(row["passes"]) for row in rows if row["node_id"] == node)


def first_passes(threefs: CommandLine, node: int) -> int:
    """Once there are some: each process begins with one."""
    deadline = time.monotonic() + WAIT_S
    while (found := passes(threefs, node)) == 0:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def test_each_target_says_when_it_was_read(threefs: CommandLine) -> None:
    rows = threefs.json("scrub", "status")["targets"]
    assert [row["node_id"] for row in rows] == [1] * 4 + [2] * 4 + [3] * 4
    for row in rows:
        assert row["interval_s"] == 7 * 86_400 and row["lost_chunks"] == 0
        assert (row["since_pass_s"] is None) == (row["passes"] == 0)
        assert row["scrubbing"] or row["pass_chunks"] == 0
    first_passes(threefs, 1)
    assert "last pass ended" in threefs.ok("scrub", "status")


def test_a_pass_begins_when_somebody_wants_one(threefs: CommandLine) -> None:
    before = first_passes(threefs, 2)
    assert threefs.json("scrub", "now", "2", "--dry-run")["nodes"] == [{"node_id": 2, "began": True, "error": None}]
    assert threefs.ok("scrub", "now", "2", "--dry-run") == "node 2: a pass would begin\n"
    assert passes(threefs, 2) == before
    (row,) = threefs.json("scrub", "now", "2")["nodes"]
    assert (row["node_id"], row["error"]) == (2, None)
    deadline = time.monotonic() + WAIT_S
    while passes(threefs, 2) == before:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert [line.split(":")[0] for line in threefs.ok("scrub", "now").splitlines()] == ["node 1", "node 2", "node 3"]
    assert "no storage node 99" in threefs.error("scrub", "now", "99")


def test_a_dry_run_says_where_no_pass_would_begin() -> None:
    node = pb.Node(node_id=1, address="h:1")
    reading = [pb.TargetReport(), pb.TargetReport(scrubbing=True)]
    for row, began, error in (
        (pb.NodeStatus(node=node, alive=True, targets=reading), False, None),
        (pb.NodeStatus(node=node, targets=reading[:1]), False, "it does not run"),
        (pb.NodeStatus(node=pb.Node(node_id=1)), False, "it was never started"),
    ):
        assert scrub_commands.would_start(row) == {"node_id": 1, "began": began, "error": error}
