"""The parent of a mount's process, with programs that only say that they are ready."""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from threefs_mount import mountpoints, supervisor
from threefs_mount.mountpoints import Mount
from threefs_mount.supervisor import supervise

from threefs.background import cancel_and_wait
from threefs.backoff import Backoff

pytestmark = pytest.mark.processes

PROGRAM = """
import os, signal, sys, time
with open(sys.argv[1], "a") as runs:
    runs.write("x")
way = sys.argv[-1].split(",")[os.path.getsize(sys.argv[1]) - 1]
if way == "detaches" and "--replace" in sys.argv:
    print("replaced here", flush=True)
if way not in ("fails", "detaches"):
    print("ready here", flush=True)
if way == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if way == "stays":
    time.sleep(60)
sys.exit(way in ("fails", "crashes", "detaches"))
"""


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_BACKOFF", Backoff(0.01, 30.0))


@pytest.fixture(autouse=True)
def mounted(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether there is a mount, at each look of the parent. Later there is one."""
    looks: list[bool] = []
    monkeypatch.setattr(mountpoints, "find", lambda point: (looks.pop(0) if looks else True) or None)
    return looks


@pytest.fixture(autouse=True)
def answering(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the mount answers, at each look of the parent. Later it does not: it is dead."""
    looks: list[bool] = []
    monkeypatch.setattr(mountpoints, "answers", lambda point: looks.pop(0) if looks else False)
    return looks


def outcome(tmp_path: Path, ways: str, *, end_when: Callable[[], bool] | None = None) -> tuple[int, int, int]:
    """(status, how often it was run, how often it was said to be ready). A signal comes when `end_when` says so: a
    program may take long to start."""
    runs, ready = tmp_path / "runs", list[int]()
    command = [sys.executable, "-c", PROGRAM, str(runs), ways]

    async def end() -> None:
        while end_when is not None and not end_when():
            await asyncio.sleep(0.02)
        for _ in range(50):
            await asyncio.sleep(0)  # a program that runs already may not be known to its parent yet
        if end_when is not None:
            signal.raise_signal(signal.SIGTERM)

    async def play() -> int:
        ending = asyncio.create_task(end())
        try:
            return await supervise(command, str(tmp_path / "nowhere"), lambda: ready.append(1))
        finally:
            await cancel_and_wait(ending)

    status = asyncio.run(play())
    return status, len(runs.read_text()) if runs.exists() else 0, len(ready)


def test_an_unmount_ends_it(tmp_path: Path) -> None:
    assert outcome(tmp_path, "ends") == (0, 1, 1)


def test_what_cannot_be_mounted_at_all_is_not_tried_again(tmp_path: Path) -> None:
    assert outcome(tmp_path, "fails") == (1, 1, 0)


def test_what_was_killed_or_has_crashed_is_started_again_until_it_works(tmp_path: Path) -> None:
    assert outcome(tmp_path, "killed,crashes,fails,fails,ends") == (0, 5, 1)


@pytest.mark.parametrize("looks", [[False], [True, False], [True, True, False]])
def test_what_somebody_has_unmounted_does_not_come_back(tmp_path: Path, mounted: list[bool], looks: list[bool]) -> None:
    """Also before its process was killed: `threefs umount --lazy` detaches a mount whose process lives until its last
    user has gone. One that has ended without having stored everything looked like success."""
    mounted += looks
    assert outcome(tmp_path, "killed,killed,ends") == (-signal.SIGKILL, (len(looks) + 1) // 2, 1)


@pytest.mark.parametrize("looks", [[True], [False, True], [False, False, True]])
def test_a_mount_that_somebody_has_made_there_by_hand_is_left_alone(
    tmp_path: Path, answering: list[bool], looks: list[bool]
) -> None:
    """A process that is to replace a dead mount was started, and refused, for ever."""
    answering += looks
    runs = (len(looks) + 1) // 2
    assert outcome(tmp_path, "killed,fails,ends") == ((-9, 1)[runs - 1], runs, 1)


def test_a_dead_mount_that_somebody_unmounts_while_the_next_process_connects_does_not_come_back(
    tmp_path: Path, mounted: list[bool]
) -> None:
    mounted += [True, True, False]  # after the first run, before the second one, and after that
    assert outcome(tmp_path, "killed,fails,ends") == (1, 2, 1)


def test_a_mount_whose_process_has_detached_the_dead_one_and_then_failed_comes_back(
    tmp_path: Path, mounted: list[bool]
) -> None:
    mounted += [True, True, False]  # the last look would be too much: nobody has unmounted it
    assert outcome(tmp_path, "killed,detaches,ends") == (0, 3, 1)


def test_a_signal_is_passed_on_and_ends_it(tmp_path: Path) -> None:
    def stays() -> bool:
        return (tmp_path / "runs").exists() and len((tmp_path / "runs").read_text()) == 2

    assert outcome(tmp_path, "killed,stays", end_when=stays) == (-signal.SIGTERM, 2, 1)


def test_a_signal_between_two_runs_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class LongPause(Backoff):
        def limit_s(self, attempt: int) -> float:
            pauses.append(attempt)
            return super().limit_s(attempt)

    pauses: list[int] = []
    monkeypatch.setattr(supervisor, "_BACKOFF", LongPause(3600.0, 3600.0))
    assert outcome(tmp_path, "killed,stays", end_when=lambda: bool(pauses)) == (-signal.SIGKILL, 1, 1)


def test_a_signal_while_a_program_is_being_started_reaches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent waited until the program ended by itself."""
    start = asyncio.create_subprocess_exec

    async def starts(*command: str, **options: Any) -> asyncio.subprocess.Process:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0.01)  # the loop hears of it
        return await start(*command, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", starts)
    assert outcome(tmp_path, "stays")[0] == -signal.SIGTERM


def test_a_process_that_cannot_be_started_once_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What had killed the mount, such as too many processes, left its parent no process: the mount stayed dead."""
    start, failures = asyncio.create_subprocess_exec, iter([None, errno.EAGAIN, errno.ENOMEM, None])

    async def starts(*command: str, **options: Any) -> asyncio.subprocess.Process:
        if failure := next(failures):
            raise OSError(failure, os.strerror(failure))
        return await start(*command, **options)

    def find(point: str) -> Mount | None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(asyncio, "create_subprocess_exec", starts)
    monkeypatch.setattr(mountpoints, "find", find)
    assert outcome(tmp_path, "killed,ends") == (0, 2, 1)


def test_the_first_process_that_cannot_be_started_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def starts(*command: str, **options: Any) -> asyncio.subprocess.Process:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(asyncio, "create_subprocess_exec", starts)
    with pytest.raises(BlockingIOError):
        outcome(tmp_path, "ends")
