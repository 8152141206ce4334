"""Slots that processes share."""

import ast
import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.other_user import NOBODY, needs_root
from threefs.env import host_slots
from threefs.env.host_slots import HostSlots, OwnSlots

HOLDER = """
import sys, time
from pathlib import Path
from threefs.env.host_slots import HostSlots
slots = HostSlots(Path(sys.argv[1]), 4)
taken = [slots.take() for _ in range(int(sys.argv[2]))]
if len(sys.argv) > 3: slots.want("it")
print(taken, flush=True)
time.sleep(60)
"""


@contextlib.contextmanager
def holder(path: Path, *arguments: object) -> Iterator[tuple["subprocess.Popen[str]", list[int | None]]]:
    """A process, and the slots that it got."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), *map(str, arguments)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process, ast.literal_eval(process.stdout.readline())
        finally:
            process.kill()


def take_all(slots: OwnSlots) -> list[int]:
    taken: list[int] = []
    while (slot := slots.take()) is not None:
        taken.append(slot)
    return taken


def test_slots_of_one_process_have_a_limit() -> None:
    slots = OwnSlots(3)
    assert take_all(slots) == [0, 1, 2]
    slots.give(1)
    assert slots.take() == 1
    slots.limit.value = 2
    slots.give(2)
    assert slots.take() is None, "of two, both are taken"


def test_a_waiting_call_is_seen_by_the_others_of_the_process() -> None:
    slots = OwnSlots(1)
    slots.want("a")
    assert slots.wanted_by_others("b") and not slots.wanted_by_others("a")
    slots.unwant("a")
    slots.unwant("a")
    assert not slots.wanted_by_others("b")


def test_slots_of_a_killed_process_are_free_at_once(tmp_path: Path) -> None:
    path = tmp_path / "slots"
    slots = HostSlots(path, 4)
    with holder(path, 3, "wants") as (process, taken):
        assert taken == [0, 1, 2]
        assert take_all(slots) == [3]
        assert slots.wanted_by_others("me")
        gone = os.pidfd_open(process.pid)
        process.send_signal(signal.SIGKILL)
        assert select.select([gone], [], [], 30)[0]
        os.close(gone)
        assert take_all(slots) == [0, 1, 2], "the kernel gives them back with the process"
        assert not slots.wanted_by_others("me")
    slots.close()


def test_a_forked_child_has_none_of_the_slots_and_takes_none_away(tmp_path: Path) -> None:
    path = tmp_path / "slots"
    slots = HostSlots(path, 4)
    taken = [slots.take(), slots.take()]
    child = os.fork()
    if not child:
        try:
            slots.give(0)  # a child that tidies up what was its parent's
            other = HostSlots(path, 4)
            os._exit(0 if take_all(other) == [2, 3] else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    with holder(path, 4) as (_, theirs):
        assert taken == [0, 1] and theirs == [2, 3, None, None]
    slots.close()


def test_processes_share_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "slots"
    slots = HostSlots(path, 8)
    assert slots.limit.value == 8
    slots.limit.value = 2
    slots.limit.cut_at = 12.5
    other = HostSlots(path, 4)
    assert other.limit.value == 2 and other.limit.cut_at == 12.5
    with holder(path, 4) as (_, taken):
        assert taken == [0, 1, None, None]
    other.limit.value = 100
    assert slots.limit.value == 8 and other.limit.value == 4, "each keeps to its own setting"
    slots.close()
    other.close()


def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "slots"
    path.touch(mode=0o600)
    path.chmod(0o666)
    with pytest.raises(PermissionError):
        HostSlots(path, 4)
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        HostSlots(path, 4)


def test_without_a_place_for_the_file_a_process_has_slots_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "threefs").mkdir()
    (tmp_path / "threefs").chmod(0o777)
    monkeypatch.setattr(host_slots, "_tables", [])
    failures: list[OSError] = []
    slots = host_slots.of_host(4, failures.append)
    assert not isinstance(slots, HostSlots) and take_all(slots) == [0, 1, 2, 3]
    assert host_slots.of_host(6, failures.append) is slots and slots.limit.most == 6, "a process has one table"
    assert [type(error) for error in failures] == [PermissionError], "it is told once"


def test_processes_of_one_user_find_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(host_slots, "_tables", [])
    assert host_slots.directory() == tmp_path / "threefs"
    failures: list[OSError] = []
    slots = host_slots.of_host(4, failures.append)
    assert not failures
    assert isinstance(slots, HostSlots)
    (path,) = (tmp_path / "threefs").iterdir()
    assert take_all(slots) == [0, 1, 2, 3]
    with holder(path, 1) as (_, taken):
        assert taken == [None]
    slots.close()


def test_a_limit_that_cannot_be_kept_fails_no_read(tmp_path: Path) -> None:
    path = tmp_path / "slots"
    slots = HostSlots(path, 8)
    slots.limit.value = 5
    os.truncate(path, 3)
    assert slots.limit.value == 5, "the rest of it counts as 0"
    os.truncate(path, 0)
    assert slots.limit.value == 8 and slots.limit.cut_at == 0.0 and slots.take() == 0
    slots.limit.value = 4
    assert slots.limit.value == 4
    full = os.open("/dev/full", os.O_RDWR)  # reads zeros, and has no room for a byte
    os.dup2(full, slots._fd)
    slots.limit.value = 2
    assert slots.limit.value == 8
    os.close(full)
    slots.close()


@needs_root
def test_root_leaves_the_runtime_directory_of_another_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sudo` may keep $XDG_RUNTIME_DIR. Then a directory of root's would be in the place of the user's."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    os.chown(tmp_path, NOBODY, NOBODY)
    assert tmp_path not in host_slots.directory().parents
    assert not list(tmp_path.iterdir())
