"""The examples run, in their short forms, and check themselves."""

import subprocess
import sys
from pathlib import Path

import pytest

from examples.moe.job import Step
from examples.moe.plot import runs
from tests.harness.processes import ROOT, environment

pytest.importorskip("torch", reason="torch is not installed (make ml-venv)")

_TIMEOUT_S = 550.0  # of a busy machine; alone they take half a minute each


def run(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=_TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.processes
@pytest.mark.timeout(600)
def test_a_training_that_is_disturbed_learns_the_same(tmp_path: Path) -> None:
    said = run("examples.train_moe", "--short", "--plot", tmp_path / "plot.svg", "--dir", tmp_path)
    assert "killing storage-2" in said and "killing a rank" in said
    assert "steps on [1, 2] ranks: each loss is that of the undisturbed training, bit by bit" in said
    assert (tmp_path / "plot.svg").read_text(encoding="utf-8").lstrip().startswith("<?xml")


@pytest.mark.processes
@pytest.mark.timeout(600)
def test_processes_load_a_model_and_read_it_once(tmp_path: Path) -> None:
    said = run("examples.load_model", "--layers", "1", "--dir", tmp_path)
    assert "1.00 times the file" in said and "4 processes answer alike" in said


def test_a_curve_begins_anew_where_a_job_begins_anew() -> None:
    steps = [Step(number, 1.0, ranks) for number, ranks in ((1, 4), (2, 4), (3, 4), (2, 4), (3, 4), (4, 2), (5, 2))]
    assert [[step.number for step in run] for run in runs(steps)] == [[1, 2, 3], [2, 3], [4, 5]]
