"""What an administrator decides about chains, by the command line."""

from tests.harness.command_line import CommandLine


def test_the_minimum_of_replicas_is_changed_and_shown(threefs: CommandLine) -> None:
    assert threefs.json("status")["tables"][0]["min_replicas"] == 2
    dry = threefs.json("chain", "min-replicas", "3", "--dry-run")
    assert dry["takes_writes"] == dry["chains"] == len(threefs.json("status")["chains"])
    assert threefs.json("status")["tables"][0]["min_replicas"] == 2
    assert "choose at most 3" in threefs.run("chain", "min-replicas", "4", "--dry-run").output
    try:
        assert threefs.json("chain", "min-replicas", "3") == {"table_id": 1, "min_replicas": 3}
        for chain in threefs.json("status")["chains"]:
            assert chain["min_replicas"] == 3 and chain["takes_writes"] is (chain["serving"] == 3)
        assert "must be 1 to 3" in threefs.run("chain", "min-replicas", "4").output
        assert "chain table 9 does not exist" in threefs.run("chain", "min-replicas", "1", "--table", "9").output
    finally:
        threefs.ok("chain", "min-replicas", "2")


def test_nothing_is_given_up_of_a_chain_that_serves(threefs: CommandLine) -> None:
    assert "is served: nothing of it is lost" in threefs.run("chain", "accept-loss", "1", "--yes").output
    assert "no chain 9999" in threefs.run("chain", "accept-loss", "9999", "--yes").output


def test_chains_are_listed_and_shown_with_their_nodes(threefs: CommandLine) -> None:
    rows = threefs.json("chain", "ls")["chains"]
    assert [row["chain_id"] for row in rows if row["table_id"] == 1] == [1, 2, 3, 4]
    for row in rows:
        assert row["takes_writes"] and not row["degraded"] and row["serving"] == row["copies"]
        assert {member["state"] for member in row["members"]} == {"serving"}
    assert threefs.json("chain", "ls", "--degraded") == {"chains": []}
    assert "0 of " in threefs.ok("chain", "ls", "--degraded")
    assert "3 of 3" in threefs.ok("chain", "ls")
    shown = threefs.json("chain", "show", "1")
    assert [m["target_id"] for m in shown["members"]] == [m["target_id"] for m in rows[0]["members"]]
    assert all(member["alive"] and member["address"] and not member["failure"] for member in shown["members"])
    assert "3 of 3 copies serve, a write needs 2: it takes writes" in threefs.ok("chain", "show", "1")
    assert "there is no chain 9999" in threefs.error("chain", "show", "9999")
