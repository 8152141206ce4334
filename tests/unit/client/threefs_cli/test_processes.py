import dataclasses
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from threefs_cli import processes
from threefs_cli.processes import Process

SLEEPER = "import sys, time; print('here', flush=True); print('trouble', file=sys.stderr, flush=True); time.sleep(600)"


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Process]:
    started = start(tmp_path, SLEEPER)
    yield started
    processes.send(started, signal.SIGKILL)
    wait_end(started)


def start(directory: Path, program: str) -> Process:
    command = [sys.executable, "-c", program]
    return processes.start(command, output=directory / "out", log=directory / "log", environment=dict(os.environ))


def wait_end(process: Process) -> None:
    while processes.alive(process):
        os.sched_yield()


def test_a_process_lives_until_it_is_stopped(sleeper: Process) -> None:
    assert processes.alive(sleeper)
    assert processes.send(sleeper, signal.SIGTERM)
    wait_end(sleeper)
    assert not processes.send(sleeper, signal.SIGTERM)


def test_output_is_fresh_and_the_log_grows(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("old\n")
    (tmp_path / "log").write_text("old\n")
    wait_end(start(tmp_path, SLEEPER.replace("600", "0")))
    assert (tmp_path / "out").read_text() == "here\n"
    assert (tmp_path / "log").read_text() == "old\ntrouble\n"


def test_it_has_a_session_of_its_own(sleeper: Process) -> None:
    assert os.getsid(sleeper.pid) == sleeper.pid


def test_another_process_with_the_same_pid_is_left_alone(sleeper: Process) -> None:
    earlier = dataclasses.replace(sleeper, started_ticks=sleeper.started_ticks - 1)
    assert not processes.alive(earlier)
    assert not processes.send(earlier, signal.SIGKILL)
    assert processes.alive(sleeper)


def test_a_process_that_is_told_to_have_ended_is_reaped(tmp_path: Path) -> None:
    for _ in range(20):  # each is looked at all the time while it ends
        ended = start(tmp_path, "")
        wait_end(ended)
        with pytest.raises(ProcessLookupError):
            os.kill(ended.pid, 0)
