"""A cluster mounted on this machine, for tests of the real kernel."""

import json
import math
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import pytest

from tests.harness.processes import environment
from threefs.leases import DELEGATION_S

#: Far above the bounds of a mount: a loaded machine must not fail a test, only a mount that never notices.
PATIENCE_S = 60.0


def lacking() -> str:
    """Why nothing can be mounted here; empty when it can."""
    if os.geteuid():
        return "mounting in tests needs root"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "there is no /dev/fuse here"
    if shutil.which("umount") is None:
        return "there is no umount here"
    return ""


def need_mounts() -> None:
    """Skip a test or a module where the kernel cannot be asked to mount."""
    if reason := lacking():
        pytest.skip(reason, allow_module_level=True)


def soon(seen: Callable[[], bool]) -> bool:
    """Whether that is seen within the patience of a test."""
    deadline = time.monotonic() + PATIENCE_S
    while not seen():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


class Creates:
    """Makes files, and counts how often it was held up for so long that its mount may have given up what it knew of the
    directory: a busy machine does that, and the mount asks again then."""

    def __init__(self) -> None:
        self.pauses = 0
        self._began_s = math.inf

    def make(self, path: Path, content: bytes = b"") -> None:
        before_s, self._began_s = self._began_s, time.monotonic()
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        if time.monotonic() - before_s > DELEGATION_S:
            self.pauses += 1
        if content:
            os.write(file, content)
        os.close(file)


class Mount:
    """`with Mount(cluster.address, tmp_path / "mnt") as root:` gives the mounted directory."""

    def __init__(self, address: str, point: Path, *options: str) -> None:
        self.point = point
        self.log = Path()
        self.pid = 0
        self._address = address
        self._options = options

    def threefs(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "threefs_cli", *words]
        state = {"XDG_STATE_HOME": str(self.point.with_name(f"{self.point.name}-state"))}
        return subprocess.run(command, env=environment() | state, capture_output=True, text=True, timeout=100)

    def mount(self) -> Path:
        self.point.mkdir(parents=True, exist_ok=True)
        done = self.threefs("mount", "--address", self._address, "--json", *self._options, str(self.point))
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        self.pid, self.log = answer["pid"], Path(answer["log"])
        return self.point

    def kill(self) -> None:
        """kill -9 of the process behind it, which is not our child. The dead mount point stays: see `umount`."""
        ended = os.pidfd_open(self.pid)
        try:
            signal.pidfd_send_signal(ended, signal.SIGKILL)
            select.select([ended], [], [])
        finally:
            os.close(ended)

    def umount(self, *options: str) -> None:
        done = self.threefs("umount", *options, str(self.point))
        assert done.returncode == 0, done.stderr + self.log.read_text()

    def __enter__(self) -> Path:
        return self.mount()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.umount()
        else:
            subprocess.run(["umount", "--lazy", str(self.point)], capture_output=True)
            print(self.log.read_text())
