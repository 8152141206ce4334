"""The parent of a mount's process, with programs that only say that they are ready."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest
from threefs_mount import supervisor
from threefs_mount.supervisor import supervise

from threefs.backoff import Backoff

pytestmark = pytest.mark.processes

PROGRAM = """
import os, signal, sys, time
with open(sys.argv[1], "a") as runs:
    runs.write("x")
way = sys.argv[2].split(",")[os.path.getsize(sys.argv[1]) - 1]
if way != "fails":
    print("ready here", flush=True)
if way == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if way == "stays":
    time.sleep(60)
sys.exit(way in ("fails", "crashes"))
"""


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_BACKOFF", Backoff(0.01, 30.0))


def outcome(tmp_path: Path, ways: str, *, end_after_s: float = 0.0) -> tuple[int, int, int]:
    """(status, how often it was run, how often it was said to be ready)."""
    runs, ready = tmp_path / "runs", list[int]()
    command = [sys.executable, "-c", PROGRAM, str(runs), ways]

    async def play() -> int:
        if end_after_s:
            asyncio.get_running_loop().call_later(end_after_s, signal.raise_signal, signal.SIGTERM)
        return await supervise(command, str(tmp_path / "nowhere"), lambda: ready.append(1))

    status = asyncio.run(play())
    return status, len(runs.read_text()), len(ready)


def test_an_unmount_ends_it(tmp_path: Path) -> None:
    assert outcome(tmp_path, "ends") == (0, 1, 1)


def test_what_cannot_be_mounted_at_all_is_not_tried_again(tmp_path: Path) -> None:
    assert outcome(tmp_path, "fails") == (1, 1, 0)


def test_what_was_killed_or_has_crashed_is_started_again_until_it_works(tmp_path: Path) -> None:
    assert outcome(tmp_path, "killed,crashes,fails,fails,ends") == (0, 5, 1)


def test_a_signal_is_passed_on_and_ends_it(tmp_path: Path) -> None:
    assert outcome(tmp_path, "killed,stays", end_after_s=3.0) == (-signal.SIGTERM, 2, 1)


def test_a_signal_between_two_runs_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_BACKOFF", Backoff(20.0, 30.0))
    assert outcome(tmp_path, "killed,stays", end_after_s=3.0) == (-signal.SIGKILL, 1, 1)
