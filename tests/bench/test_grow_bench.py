"""`make bench-grow` at its small size: every figure is there, and what does not depend on the machine is reached."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.grow import __main__ as bench
from benchmarks.grow.goals import GOALS

ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT_S = 400


@pytest.mark.timeout(_TIMEOUT_S + 20)
def test_a_small_run_has_every_figure(tmp_path: Path) -> None:
    file = tmp_path / "grow.json"
    command = [sys.executable, "-m", "benchmarks.grow", "--size", "small", "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    missing = [goal.key for goal in GOALS if goal.key not in found]
    assert not missing, f"{missing}\n{done.stdout}"
    assert all(math.isfinite(found[goal.key]) for goal in GOALS)
    must_hold = ("dead_disk_spread", "manager_failures", "manager_leases_missing", "errors", "fsck_unclean")
    failed = [goal.key for goal in GOALS if goal.key in must_hold and not goal.reached(found[goal.key])]
    assert not failed, done.stdout


def test_a_group_that_does_not_exist_is_named() -> None:
    result = CliRunner().invoke(bench.main, ["--only", "placement,nothing"])
    assert result.exit_code == 2 and "nothing is none of placement, dead_disk" in result.output
