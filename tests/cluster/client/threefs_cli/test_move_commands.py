"""A node is drained, and the moves are watched to their end."""

import json
from pathlib import Path

import threefs_client

from tests.harness.cluster import LocalCluster
from tests.harness.command_line import CommandLine

MIB = 1 << 20


def test_moves_are_watched_until_nothing_moves(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, storage=3, replicas=2, targets_per_disk=4, lease_s=2.0) as cluster:
        threefs = CommandLine(cluster.address)
        assert threefs.ok("moves") == "nothing moves\n"
        with threefs_client.connect(cluster.address) as fs:
            fs.write_file("/a", b"x" * 64 * MIB)
        planned = threefs.json("node", "drain", "1")["moves"]
        seen = [json.loads(line) for line in threefs.ok("moves", "--watch", "--json", "--interval", "0.1").splitlines()]
        moves = {(move["chain_id"], move["added_target"]): move for found in seen for move in found["moves"]}
        assert len(moves) >= sum(row["targets"] for row in planned) > 0
        assert {move["removed_node"] for move in moves.values()} == {1}
        assert any(found["total_bytes"] for found in seen)
        for found in seen:
            assert found["under_way"] + found["queued"] == len(found["moves"])
            assert all(move["copied_bytes"] <= move["total_bytes"] for move in found["moves"])
        assert seen[-1]["moves"] == [] and not seen[-1]["more_follow"]
        assert next(row for row in threefs.json("node", "ls")["nodes"] if row["node_id"] == 1)["state"] == "drained"
