"""`put` and `get` that are killed at any moment leave the old file or the new one, whole."""

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from threefs_client import FileSystem

from tests.harness.cluster import LocalCluster
from tests.harness.processes import environment

#: Random moments at which `put` is killed: half of them while it sends a file in one piece, half in several.
POINTS = 50
SEED = 16

#: Has everything imported, so that a kill hits the copying: a line "SECONDS WORD..." runs a command in a child, kills
#: it after so long (0: never), and is answered with how long it took, and whether it had ended by then.
DRIVER = """
import os, signal, sys, time
import threefs_cli.main, threefs_cli.transfer_commands, uvloop, threefs_client
for line in sys.stdin:
    seconds, *words = line.split()
    began = time.monotonic()
    pid = os.fork()
    if not pid:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        threefs_cli.main.main(words)
    if float(seconds):
        time.sleep(float(seconds))
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    ended = "killed" if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status)
    print(time.monotonic() - began, ended, flush=True)
"""


class Driver:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(self, *words: str, kill_after_s: float = 0.0) -> tuple[float, str]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{kill_after_s} {' '.join(words)}\n")
        self._process.stdin.flush()
        lasted_s, outcome = self._process.stdout.readline().split()
        return float(lasted_s), outcome


@contextmanager
def driving() -> Iterator[Driver]:
    command = [sys.executable, "-c", DRIVER]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment()) as process:
        yield Driver(process)
        assert process.stdin is not None
        process.stdin.close()


def content(number: int, size: int) -> bytes:
    return hashlib.sha256(b"%d" % number).digest() * (size // 32)


@pytest.mark.parametrize("size", [256 << 10, 24 << 20], ids=["in one piece", "in several"])
def test_a_killed_put_leaves_the_old_file_or_the_new_one(
    size: int, cluster: LocalCluster, fs: FileSystem, tmp_path: Path
) -> None:
    dice, source, path = random.Random(SEED), tmp_path / "source", f"/killed-{size}/file"
    fs.mkdir(f"/killed-{size}")
    outcomes = {"old": 0, "new": 0}
    with driving() as driver:
        words = ("put", str(source), path, "--address", cluster.address)
        source.write_bytes(content(0, size))
        lasts_s = min(driver.run(*words)[0] for _ in range(4))
        at = 0
        for number in range(1, POINTS // 2 + 1):
            source.write_bytes(content(number, size))
            _, outcome = driver.run(*words, kill_after_s=dice.uniform(0.1, 1.1) * lasts_s)
            found = fs.read_file(path)
            # The request of a killed program may still be on its way: the file is of any kill since the last change.
            at = next((kill for kill in range(number, at - 1, -1) if found == content(kill, size)), -1)
            assert at >= 0, f"after {number} kills the file is neither ({len(found)} bytes)"
            assert at == number or outcome == "killed", f"put {number} ended with {outcome}, and its file is not there"
            outcomes["new" if at == number else "old"] += 1
        assert driver.run(*words)[1] == "0"
    assert outcomes["old"], "no kill came before the end"


def test_a_killed_get_leaves_the_old_file_or_the_new_one(cluster: LocalCluster, fs: FileSystem, tmp_path: Path) -> None:
    dice, size, target = random.Random(SEED), 24 << 20, tmp_path / "target"
    fs.mkdir("/fetched")
    olds = 0
    with driving() as driver:
        words = ("get", "/fetched/file", str(target), "--address", cluster.address)
        fs.write_file("/fetched/file", content(0, size))
        lasts_s = min(driver.run(*words)[0] for _ in range(4))
        at = 0
        for number in range(1, 16):
            fs.write_file("/fetched/file", content(number, size))
            driver.run(*words, kill_after_s=dice.uniform(0.1, 1.1) * lasts_s)
            found = target.read_bytes()
            if found == content(number, size):
                at = number
            else:
                assert found == content(at, size), f"neither the old nor the new file ({len(found)} bytes)"
                olds += 1
    assert olds, "no kill came before the end"
    assert all(name == "target" or name.startswith(".get-") for name in os.listdir(tmp_path))
