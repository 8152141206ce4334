"""The installed program as a person uses it: every command is a process of its own."""

import filecmp
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.processes import environment

LIMIT_S = 90


class Shell:
    """`threefs ... --dir DIRECTORY`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def run(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "threefs_cli", *arguments, "--dir", str(self.directory)]
        return subprocess.run(command, capture_output=True, env=environment(), timeout=LIMIT_S)

    def ok(self, *arguments: str) -> bytes:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path / "cluster")
    yield made
    made.ok("down")


def trees_are_equal(one: Path, other: Path) -> bool:
    compared = filecmp.dircmp(one, other)
    waiting = [compared]
    while waiting:
        here = waiting.pop()
        same, different, strange = filecmp.cmpfiles(here.left, here.right, here.common_files, shallow=False)
        if here.left_only or here.right_only or different or strange or len(same) != len(here.common_files):
            return False
        waiting += here.subdirs.values()
    return True


def make_tree(top: Path) -> None:
    for number in range(40):
        directory = top / f"d{number % 5}" / "below"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{number}.bin").write_bytes(os.urandom(number * 5000))
    (top / "large.bin").write_bytes(os.urandom((20 << 20) + 1))
    (top / "empty").mkdir()


def test_a_tree_survives_a_killed_storage_process_and_a_restart(shell: Shell, tmp_path: Path) -> None:
    source, first, second = tmp_path / "source", tmp_path / "first", tmp_path / "second"
    make_tree(source)
    state: Any = json.loads(shell.ok("up", "--json"))
    shell.ok("put", "-r", str(source), "/tree")
    shell.ok("get", "-r", "/tree", str(first))
    assert trees_are_equal(source, first)

    victim = next(row for row in state["programs"] if row["name"] == "storage-2")
    os.kill(victim["pid"], signal.SIGKILL)
    assert shell.ok("cat", "/tree/large.bin") == (source / "large.bin").read_bytes()
    shell.ok("get", "-r", "/tree", str(second))
    assert trees_are_equal(source, second)

    again: Any = json.loads(shell.ok("up", "--json"))  # what is missing is started again, where it was
    assert again["address"] == state["address"]
    pids = {row["name"]: row["pid"] for row in again["programs"]}
    assert pids["storage-2"] != victim["pid"]
    assert pids["storage-1"] == next(row["pid"] for row in state["programs"] if row["name"] == "storage-1")
    shell.ok("put", str(source / "large.bin"), "/tree/again.bin")

    stopped = json.loads(shell.ok("down", "--json"))["stopped"]
    assert len(stopped) == 5
    shell.ok("up")
    assert shell.ok("cat", "/tree/again.bin") == (source / "large.bin").read_bytes()


def test_foreground_stops_its_cluster_by_a_signal(shell: Shell) -> None:
    command = [sys.executable, "-m", "threefs_cli", "up", "--foreground", "--storage", "1", "--dir"]
    with subprocess.Popen(
        [*command, str(shell.directory)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment()
    ) as process:
        assert process.stdout is not None
        assert b" is up, in " in process.stdout.readline()
        assert shell.ok("ls", "/") == b""
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 0
    assert shell.ok("down").startswith(b"no cluster runs")
