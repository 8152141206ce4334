import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from threefs_bench import mount

STEPS = ("create", "stat", "readdir", "scan", "rename", "unlink")


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mount, "_PAUSE_S", 0.0)


@pytest.mark.usefixtures("_at_once")
def test_all_steps_are_measured_and_the_directory_is_left_as_it_was(tmp_path: Path) -> None:
    rows = mount.measure(tmp_path, files=40, processes=(1, 2), apart=(4,))
    assert [row.name for row in rows] == [f"{step}_{of}" for of in ("p1", "p2", "p4_apart") for step in STEPS]
    assert [[row.operations for row in rows[at : at + 6]] for at in (0, 6, 12)] == [
        [40] * 2 + [120] * 2 + [40] * 2,
        [40] * 2 + [240] * 2 + [40] * 2,
        [40] * 2 + [120] * 2 + [40] * 2,
    ]
    assert all(row.per_s > 0 and row.p50_ms <= row.p99_ms for row in rows)
    assert os.listdir(tmp_path) == []
    assert [mount.Row(**row) for row in json.loads(mount.as_json(rows))] == rows


@pytest.mark.usefixtures("_at_once")
def test_a_step_that_takes_too_long_ends_and_the_next_ones_use_what_it_has_done(tmp_path: Path) -> None:
    rows = mount.measure(tmp_path, files=20, processes=(1,), apart=(), cap_s=0.0)
    assert {row.name: row.operations for row in rows} == {
        f"{step}_p1": 1 + 2 * (step in ("readdir", "scan")) for step in STEPS
    }


def test_what_fails_is_an_error(tmp_path: Path) -> None:
    (tmp_path / f"bench-{os.getpid()}").mkdir()
    with pytest.raises(FileExistsError):
        mount.measure(tmp_path, files=1)
    with pytest.raises(OSError, match="FileNotFoundError"):
        mount._step("stat", os.stat, [[str(tmp_path / "none")]], 1.0)


def test_on_the_command_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "threefs_bench", "mount", str(tmp_path), "--files", "64", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == 2 * 6 + 6
