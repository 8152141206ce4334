"""A disk is replaced by an empty one while the cluster is used."""

import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.harness.cluster import LocalCluster
from tests.harness.command_line import CommandLine

MIB = 1 << 20


def test_an_empty_disk_takes_the_place_of_another_one(tmp_path: Path) -> None:
    with LocalCluster(tmp_path) as cluster, cluster.connect() as fs:
        threefs = CommandLine(cluster.address)
        fs.write_file("/a", b"a" * 8 * MIB)
        planned = threefs.ok("disk", "replace", "2", "--dry-run")
        assert "the 4 targets of node 2" in planned and "2 of 3 copies then" in planned
        assert threefs.json("chain", "ls", "--degraded")["chains"] == [], "a dry run changes nothing"
        late = subprocess.Popen(
            [sys.executable, "-m", "threefs_cli", "disk", "replace", "2", "--address", cluster.address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert late.stderr is not None
        while not late.stderr.read1().endswith(b"[y/N]: "):  # type: ignore[attr-defined]
            assert late.poll() is None
        (first,) = lines(threefs.ok("disk", "replace", "2", "--yes", "--no-wait", "--json"))
        assert (first["phase"], len(first["targets"])) == ("awaited", 4)
        assert "is under way" in threefs.ok("disk", "replace", "2", "--dry-run")
        refused = threefs.run("disk", "replace", "1", "--yes")
        assert refused.exit_code == 2 and "a write needs 2" in refused.output
        again = threefs.run("disk", "replace", "2", "--yes", "--no-wait")
        under_way = again.stderr
        assert again.exit_code == 0 and "put an empty disk" in again.stdout
        assert under_way.startswith("a replacement of the disk of node 2 is under way") and "--dry-run" in under_way
        told: list[dict[str, Any]] = []

        def go_on() -> None:
            told.extend(lines(threefs.ok("disk", "replace", "2", "--json", "--interval", "0.1")))

        waiting = threading.Thread(target=go_on)
        waiting.start()
        fs.write_file("/b", b"b" * 8 * MIB)
        cluster.storage[2].stop()
        shutil.rmtree(tmp_path / "storage-2" / "data")
        cluster.storage[2].start()
        waiting.join(100)
        assert not waiting.is_alive()
        phases = list(dict.fromkeys(one["phase"] for one in told))
        assert phases[0] == "awaited" and phases[-1] == "in service" and "arrived" in phases
        assert told[-1]["copied_bytes"] == told[-1]["total_bytes"] >= 16 * MIB and told[-1]["serving"] == 4
        assert fs.read_file("/a") == b"a" * 8 * MIB and fs.read_file("/b") == b"b" * 8 * MIB
        assert "clean" in threefs.ok("fsck")
        assert late.communicate(b"y\n", timeout=60) == (b"all 4 targets of node 2 serve\n", under_way.encode())
        assert "no storage node 9" in threefs.error("disk", "replace", "9", "--yes")


def test_a_dead_disk_is_replaced_in_the_same_way(tmp_path: Path) -> None:
    with LocalCluster(tmp_path) as cluster, cluster.connect() as fs:
        threefs = CommandLine(cluster.address)
        fs.write_file("/a", b"a" * 2 * MIB)
        cluster.storage[2].kill()
        deadline = time.monotonic() + 60
        while len(threefs.json("chain", "ls", "--degraded")["chains"]) < 4:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        planned = threefs.ok("disk", "replace", "2", "--dry-run")
        assert "the 4 targets of node 2" in planned and "put an empty disk" in planned
        told = threefs.ok("disk", "replace", "2", "--yes", "--no-wait")
        assert "put an empty disk at its `data_dir`, and start it" in told
        shutil.rmtree(tmp_path / "storage-2" / "data")
        cluster.storage[2].start()
        assert lines(threefs.ok("disk", "replace", "2", "--json"))[-1]["phase"] == "in service"
        assert fs.read_file("/a") == b"a" * 2 * MIB and "clean" in threefs.ok("fsck")


def lines(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]
