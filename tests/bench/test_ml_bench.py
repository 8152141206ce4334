"""One tiny round of `make bench-ml` with real processes: every figure is there, however large it is."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner
from threefs_bench.peer_harness import Harness

from benchmarks import testbed
from benchmarks.measurements import Measurements
from benchmarks.ml import __main__ as bench
from benchmarks.ml import checkpoint_rows, sample_readers
from benchmarks.ml.goals import GOALS
from benchmarks.ml.run_plan import Round, Size
from tests.harness.mounts import lacking

ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT_S = 240
BESIDE = ("dataloader", "dcp_threefs")


@pytest.mark.timeout(_TIMEOUT_S + 20)
def test_one_small_round_has_every_figure(tmp_path: Path) -> None:
    file = tmp_path / "ml.json"
    command = [sys.executable, "-m", "benchmarks.ml", "--size", "small", "--rounds", "1", "--json", str(file)]
    done = subprocess.run(
        [*command, "--beside", ",".join([*BESIDE, "mosaic"])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    missing = [key for key in expected() if key not in found]
    assert not missing, f"{missing}\n{done.stdout}"
    numbers = {name: value for name, value in found.items() if not isinstance(value, str)}
    wrong = {name: value for name, value in numbers.items() if not (math.isfinite(value) and value >= 0)}
    assert not wrong
    must_hold = ("histories_", "killed_saves_", "resharded_loads_", "read_once_", "staging_peak_")
    failed = [goal.key for goal in GOALS if goal.key.startswith(must_hold) and not goal.reached(found[goal.key])]
    assert not failed
    assert "| `loader_4k` |" in done.stdout
    assert "mosaic: not in all rounds, not installed (make mosaic-venv" in done.stdout or lacking()


def expected() -> set[str]:
    """The figures that this machine can measure with these others."""
    able = {"load_generator", *(other for other in BESIDE if find_spec("torch"))}
    if lacking():
        able -= {"dataloader"}
    others = {*bench.OTHERS, *checkpoint_rows.ON_PEERS.values(), "load_generator"} - able
    return {goal.key for goal in GOALS if not any(f"_over_{other}" in goal.key for other in others)}


PEERS = """
import os, pathlib, subprocess, sys
if "PEERS" in os.environ:
    sys.exit("only odd numbers of peers")
action, name, _, place, *rest = sys.argv[1:]
pathlib.Path(place, "mnt").mkdir(exist_ok=True)
if name == "moosefs" and action == "up":
    sys.exit("no such volume")
if action == "exec":
    sys.exit(subprocess.run(rest[1:]).returncode)
"""


def test_a_mounted_peer_is_measured_beside_the_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("safetensors", reason="safetensors is not installed (make ml-venv)")
    monkeypatch.setenv("PEERS", "as make exports it")
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "peers.py").write_text(PEERS)
    found = Measurements()
    harness = Harness(tmp_path / "programs", tmp_path / "peers", True, 60.0)
    size = Size("test", 0, 0.0, 1 << 20, 1, 1)
    plan = Round(tmp_path, size, 1, ("seaweedfs", "moosefs"), sys.executable, lambda line: None, harness)
    bed = testbed.Testbed(tmp_path, "", {})
    jobs = checkpoint_rows._able(plan, found)
    assert jobs == ["safetensors_seaweedfs", "safetensors_moosefs"]
    rows = {job: checkpoint_rows._way(found, job)(plan, bed, job) for job in jobs}
    assert rows["safetensors_seaweedfs"].keys() == {"save", "load"} and not rows["safetensors_moosefs"]
    assert found.left_out == {"moosefs": "no such volume"}
    assert not checkpoint_rows._able(replace(plan, harness=None), found)
    assert "PEERS= does not name a harness" in found.left_out["seaweedfs"]


def test_the_time_of_a_process_that_has_ended_is_that_of_its_parent() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert sample_readers.process_cpu_s(ended.pid) == 0
    assert list(sample_readers.family(ended.pid)) == [ended.pid]
    assert sample_readers.process_cpu_s(os.getpid()) > 0


def test_a_group_that_does_not_exist_is_named() -> None:
    result = CliRunner().invoke(bench.main, ["--only", "loader,nothing"])
    assert result.exit_code == 2 and "nothing is none of loader, resume, checkpoint" in result.output
