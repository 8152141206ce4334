"""What another user of this machine can do: code in a process of `nobody`. Needs root."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness.processes import environment

NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


def _command(code: str, arguments: tuple[str, ...]) -> list[str]:
    become = f"import os; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
    return [sys.executable, "-c", become + code, *arguments]


def _environment(home: Path) -> dict[str, str]:
    """Nothing of ours that would open doors."""
    kept = {name: value for name, value in environment().items() if not name.startswith(("THREEFS_", "XDG_"))}
    return {**kept, "HOME": str(home)}


def run_as_nobody(code: str, *arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(code, arguments), env=_environment(home), capture_output=True, text=True, timeout=120, cwd="/"
    )


@contextmanager
def nobody_does(code: str, *arguments: str, home: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that stays; its first line has been read when this begins."""
    with subprocess.Popen(
        _command(code, arguments),
        env=_environment(home),
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
        cwd="/",
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline(), "it did not begin"
            yield process
        finally:
            process.kill()
