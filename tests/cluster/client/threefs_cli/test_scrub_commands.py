"""What the scrubbers of the shared cluster have read."""

from tests.harness.command_line import CommandLine


def test_each_target_says_when_it_was_read(threefs: CommandLine) -> None:
    rows = threefs.json("scrub", "status")["targets"]
    assert [row["node_id"] for row in rows] == [1] * 4 + [2] * 4 + [3] * 4
    for row in rows:
        assert row["interval_s"] == 7 * 86_400 and row["lost_chunks"] == 0
        assert (row["since_pass_s"] is None) == (row["passes"] == 0)
        assert row["scrubbing"] or row["pass_chunks"] == 0
    assert "last pass ended" in threefs.ok("scrub", "status")
