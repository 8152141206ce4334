"""A node is drained, and the moves are watched to their end."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import threefs_client

from tests.harness.cluster import LocalCluster
from tests.harness.command_line import CommandLine
from tests.harness.processes import environment

MIB = 1 << 20


def test_moves_are_watched_until_nothing_moves(tmp_path: Path) -> None:
    """The disks that are filled stand still until all moves were shown: else a move may end between two looks."""
    with LocalCluster(tmp_path, storage=3, replicas=2, targets_per_disk=4) as cluster:
        threefs = CommandLine(cluster.address)
        assert threefs.ok("moves") == "nothing moves\n"
        with threefs_client.connect(cluster.address) as fs:
            fs.write_file("/a", b"x" * 64 * MIB)
        send(cluster, signal.SIGSTOP)
        planned = threefs.json("node", "drain", "1")["moves"]
        seen = []
        with follow(cluster.address, "moves", "--watch", "--json") as watch:
            assert watch.stdout is not None
            for line in watch.stdout:
                seen.append(json.loads(line))
                if len(seen[-1]["moves"]) == sum(row["targets"] for row in planned):
                    send(cluster, signal.SIGCONT)
        assert watch.returncode == 0
        moves = {(move["chain_id"], move["added_target"]): move for found in seen for move in found["moves"]}
        assert len(moves) >= sum(row["targets"] for row in planned) > 0
        assert {move["removed_node"] for move in moves.values()} == {1}
        assert any(found["total_bytes"] for found in seen)
        for found in seen:
            assert found["under_way"] + found["queued"] == len(found["moves"])
            assert all(move["copied_bytes"] <= move["total_bytes"] for move in found["moves"])
        assert seen[-1]["moves"] == [] and not seen[-1]["more_follow"]
        assert next(row for row in threefs.json("node", "ls")["nodes"] if row["node_id"] == 1)["state"] == "drained"


def test_commands_that_follow_a_cluster_outlast_a_restart_of_its_manager(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, storage=3, replicas=2, targets_per_disk=4) as cluster:
        threefs = CommandLine(cluster.address)
        cluster.storage[3].stop()
        threefs.ok("node", "drain", "1")
        threefs.ok("disk", "replace", "3", "--yes", "--no-wait")
        with (
            follow(cluster.address, "moves", "--watch") as moves,
            follow(cluster.address, "disk", "replace", "3") as disk,
        ):
            for one in (moves, disk):
                assert one.stdout is not None and one.stdout.readline()
            cluster.manager.kill()
            for one in (moves, disk):
                assert one.stderr is not None
                while "this command waits" not in (said := one.stderr.readline()):
                    assert said.startswith("a replacement"), said
            cluster.manager.start()
            shutil.rmtree(tmp_path / "storage-3" / "data")
            cluster.storage[3].start()
            for one in (moves, disk):
                one.communicate(timeout=100)
            assert (moves.returncode, disk.returncode) == (0, 0)
        assert threefs.json("chain", "ls", "--degraded")["chains"] == []


def send(cluster: LocalCluster, number: signal.Signals) -> None:
    """To the storage processes that get the targets of node 1."""
    for node in (2, 3):
        cluster.storage[node].process.send_signal(number)


def follow(address: str, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "threefs_cli", *words, "--interval", "0.1", "--address", address]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
