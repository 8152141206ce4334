from pathlib import Path

import pytest
from threefs_bench.mount import Row
from threefs_bench.peer_harness import Harness, PeerFailedError

STEPS = ("create", "stat", "readdir", "scan", "rename", "unlink")
ROW = {"name": "meta_create_p1", "unit": "ops/s", "value": 120.5, "p50_ms": 1.0, "p99_ms": 2.0, "ops": 7}
ROW |= {"cpu_s_per_kop": 0.25}

PEERS = """
import os, sys, pathlib, subprocess
if "PEERS" in os.environ:
    sys.exit("only odd numbers of peers")
action, name, _, place, *rest = sys.argv[1:]
pathlib.Path(place, "calls").open("a").write(f"{action} {' '.join(rest)}\\n")
if name == "broken" and action == "up":
    sys.exit("first line\\nno such volume")
if action == "exec":
    sys.exit(subprocess.run(rest[1:]).returncode)
"""

MOUNTBENCH = """
import sys, json, pathlib
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
label = words["--label"]
rows = [{"name": "metadata", "error": "ENOSPC"}] if label == "full" else [%r]
pathlib.Path(words["--json"]).write_text(json.dumps({"results": rows}))
"""


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "peers.py").write_text(PEERS)
    (programs / "mountbench.py").write_text(MOUNTBENCH % ROW)
    return Harness(programs, tmp_path / "work", quick=True, timeout_s=60)


def calls(harness: Harness, name: str) -> list[str]:
    return [line.split()[0] for line in (harness.work / name / "calls").read_text().splitlines()]


def test_a_peer_is_brought_up_measured_inside_and_taken_down(harness: Harness) -> None:
    harness.install("seaweedfs")
    harness.install("seaweedfs")
    (harness.work / "seaweedfs" / "mnt").mkdir()
    first, *apart = harness.measure_peer("seaweedfs")
    assert first == Row("create_p1", 120.5, 1.0, 2.0, 0.25, 7)
    assert [row.name for row in apart] == [f"{step}_p64_apart" for step in STEPS]
    assert calls(harness, "seaweedfs") == ["install", "up", "exec", "exec", "down"]
    assert "--durability fsync" in (harness.work / "seaweedfs" / "calls").read_text()


def test_a_peer_does_not_find_our_options_in_its_environment(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEERS", "/path/to/harness")
    (harness.work / "seaweedfs" / "mnt").mkdir(parents=True)
    assert harness.measure_peer("seaweedfs")


def test_one_that_does_not_start_is_taken_down_and_says_why(harness: Harness) -> None:
    with pytest.raises(PeerFailedError, match="no such volume"):
        harness.measure_peer("broken")
    assert calls(harness, "broken") == ["up", "down"]


def test_a_measurement_that_failed_is_no_figure(harness: Harness, tmp_path: Path) -> None:
    with pytest.raises(PeerFailedError, match="ENOSPC"):
        harness.measure(tmp_path, "full")
