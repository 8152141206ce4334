"""Runs the programs that count under a lock, one on each mount, and judges what they printed."""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.chaos import locker
from tests.harness.processes import environment

_PAUSE_S = 0.2


class Counting:
    def __init__(self, mounts: Sequence[Path], directory: Path) -> None:
        self.told = 0
        self._mounts = mounts
        self._directory = directory
        self._programs: list[subprocess.Popen[bytes]] = []

    @property
    def _stop(self) -> Path:
        return self._directory / "stop-counting"

    def _printed(self, number: int) -> Path:
        return self._directory / f"counted-{number}"

    def start(self) -> None:
        if not self._mounts:
            return
        (self._mounts[0] / "counter").touch()
        for number, root in enumerate(self._mounts):
            command = [sys.executable, "-m", "tests.chaos.locker", str(root / "counter"), str(self._stop)]
            with self._printed(number).open("wb") as out:
                self._programs.append(subprocess.Popen(command, stdout=out, env=environment()))

    def end(self, limit_s: float) -> list[str]:
        """What is wrong, once all have stopped."""
        if not self._mounts:
            return []
        self._stop.touch()
        end = time.monotonic() + limit_s
        while any(program.poll() is None for program in self._programs) and time.monotonic() < end:
            time.sleep(_PAUSE_S)
        found = []
        for number, program in enumerate(self._programs):
            if program.poll() is None:
                program.kill()
                found.append(f"I13: the program that counts on mount {number} did not end within {limit_s:.0f} s")
            elif program.returncode:
                found.append(f"the program that counts on mount {number} ended with {program.returncode}")
        lines = [line for number in range(len(self._mounts)) for line in self._printed(number).read_text().splitlines()]
        self.told = sum(line.startswith("told ") for line in lines)
        time.sleep(1.5)  # names and attributes of a mount may be a second old
        return found + locker.judge(lines, int((self._mounts[0] / "counter").read_bytes() or b"0"))
