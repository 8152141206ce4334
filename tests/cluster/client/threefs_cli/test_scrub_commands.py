"""What the scrubbers of the shared cluster have read."""

import time

from tests.harness.command_line import CommandLine

WAIT_S = 60.0


def test_each_target_says_when_it_was_read(threefs: CommandLine) -> None:
    rows = threefs.json("scrub", "status")["targets"]
    assert [row["node_id"] for row in rows] == [1] * 4 + [2] * 4 + [3] * 4
    for row in rows:
        assert row["interval_s"] == 7 * 86_400 and row["lost_chunks"] == 0
        assert (row["since_pass_s"] is None) == (row["passes"] == 0)
        assert row["scrubbing"] or row["pass_chunks"] == 0
    assert "last pass ended" in threefs.ok("scrub", "status")


def test_a_pass_begins_when_somebody_wants_one(threefs: CommandLine) -> None:
    def passes() -> int:
        return min(int(row["passes"]) for row in threefs.json("scrub", "status")["targets"] if row["node_id"] == 2)

    deadline = time.monotonic() + WAIT_S
    while (before := passes()) == 0:  # each process begins with one
        assert time.monotonic() < deadline
        time.sleep(0.1)
    (row,) = threefs.json("scrub", "now", "2")["nodes"]
    assert (row["node_id"], row["error"]) == (2, None)
    while passes() == before:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert [line.split(":")[0] for line in threefs.ok("scrub", "now").splitlines()] == ["node 1", "node 2", "node 3"]
    assert "no storage node 99" in threefs.error("scrub", "now", "99")
