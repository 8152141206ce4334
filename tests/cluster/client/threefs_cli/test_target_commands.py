"""Targets out of service and back, and heads that rotate, on a cluster that is written to."""

import time
from pathlib import Path

from tests.harness.cluster import LocalCluster
from tests.harness.command_line import CommandLine
from threefs.rpc import methods
from threefs.wire import manager_pb2 as pb

WAIT_S = 60.0


def wait_whole(threefs: CommandLine) -> None:
    deadline = time.monotonic() + WAIT_S
    while degraded := threefs.json("chain", "ls", "--degraded")["chains"]:
        assert time.monotonic() < deadline, degraded
        time.sleep(0.1)


def test_a_disk_is_out_of_service_for_a_while(tmp_path: Path) -> None:
    with LocalCluster(tmp_path) as cluster, cluster.connect() as fs:
        threefs = CommandLine(cluster.address)
        fs.write_file("/a", b"old" * 1000)
        dry = threefs.json("target", "offline", "--node", "2", "--dry-run")
        assert [c["serving"] for c in dry["chains"]] == [2, 2, 2, 2] and threefs.json("chain", "ls", "--degraded")[
            "chains"
        ] == []
        out = threefs.json("target", "offline", "--node", "2")
        assert out["targets"] == dry["targets"] and all(chain["takes_writes"] for chain in out["chains"])
        for chain in threefs.json("chain", "ls")["chains"]:
            assert [m["state"] for m in chain["members"] if m["out_of_service"]] == ["offline"] and chain[
                "serving"
            ] == 2
        fs.write_file("/a", b"new" * 1000)
        cluster.storage[2].stop()
        cluster.storage[2].start()
        fs.write_file("/b", b"b" * 1000)
        assert fs.read_file("/a") == b"new" * 1000
        time.sleep(3.0)
        assert len(threefs.json("chain", "ls", "--degraded")["chains"]) == 4, "it stays out after its restart"
        assert "target_held" in threefs.run("health").output
        refused = threefs.run("target", "offline", "--node", "1")
        assert refused.exit_code == 2 and "would have 1 of 3 copies in service" in refused.output
        assert "out of service (`threefs target online`" in threefs.ok("chain", "show", "1")
        assert threefs.json("target", "online", "--node", "2")["targets"] == out["targets"]
        wait_whole(threefs)
        assert threefs.json("target", "online", "--node", "2")["targets"] == []
        found = threefs.json("chunk", "where", "/a:0")
        assert found["agree"] and {m["state"] for m in found["members"]} == {"serving"}
        told = [event["text"] for event in threefs.json("chunk", "story", "/a:0")["events"]]
        assert any("offline" in one for one in told) and any("syncing" in one for one in told)
        assert any("sends the whole chunk" in one for one in told)
        assert "clean" in threefs.ok("fsck")
        assert "no chain has a target 9" in threefs.error("target", "offline", "9")
        assert "node 9 has no targets" in threefs.error("target", "online", "--node", "9")


def test_a_whole_chain_is_out_only_by_force(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, replicas=1, targets_per_disk=1) as cluster, cluster.connect() as fs:
        threefs = CommandLine(cluster.address)
        fs.write_file("/a", b"kept" * 1000)
        assert "its reads and writes would wait" in threefs.run("target", "offline", "101").output
        asked = threefs.run("target", "offline", "101", "--force")
        assert asked.exit_code == 2 and "READS AND WRITES WAIT" in asked.output, "nobody has said yes"
        (chain,) = threefs.json("target", "offline", "101", "--force", "--yes")["chains"]
        assert (chain["serving"], chain["takes_reads"]) == (0, False)
        status = cluster.ask(methods.GET_STATUS, pb.GetStatusRequest())
        states = {m.target_id: m.state for one in status.chains for m in one.members}
        assert states[101] == pb.LASTSRV
        threefs.ok("target", "online", "101")
        wait_whole(threefs)
        assert fs.read_file("/a") == b"kept" * 1000


def test_another_target_becomes_the_head(tmp_path: Path) -> None:
    with LocalCluster(tmp_path) as cluster, cluster.connect() as fs:
        threefs = CommandLine(cluster.address)
        fs.write_file("/a", b"a" * 1000)
        before = [m["target_id"] for m in threefs.json("chain", "show", "1")["members"]]
        dry = threefs.json("chain", "rotate", "1", "--dry-run")
        assert (dry["old_head"], dry["new_head"]) == (before[0], before[1])
        done = threefs.json("chain", "rotate", "1")
        assert (done["old_head"], done["new_head"]) == (before[0], before[1]) and done["version"] > dry["version"]
        fs.write_file("/b", b"b" * 1000)
        wait_whole(threefs)
        assert [m["target_id"] for m in threefs.json("chain", "show", "1")["members"]] == [*before[1:], before[0]]
        assert "clean" in threefs.ok("fsck")
