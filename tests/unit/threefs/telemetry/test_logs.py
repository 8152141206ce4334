"""Logs go on when a line cannot be written."""

import os
import subprocess
import sys

import pytest

_PROGRAM = """
import structlog
from threefs.telemetry import logs

logs.configure("program")
for number in range(1000):
    structlog.get_logger().warning("a line", number=number)
print("went on")
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_of_the_log_ends_no_program(unbuffered: str) -> None:
    """Nor does it make a failure of it, where Python keeps what could not be written, and tries again at the exit."""
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", _PROGRAM], stdout=subprocess.PIPE, stderr=full, text=True, env=environment
        )
    assert ended.stdout == "went on\n" and ended.returncode == 0
