"""Logs go on when a line cannot be written."""

import subprocess
import sys

_PROGRAM = """
import structlog
from threefs.telemetry import logs

logs.configure("program")
for number in range(1000):
    structlog.get_logger().warning("a line", number=number)
print("went on")
"""


def test_a_full_disk_of_the_log_ends_no_program() -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run([sys.executable, "-c", _PROGRAM], stdout=subprocess.PIPE, stderr=full, text=True)
    assert ended.stdout == "went on\n" and ended.returncode == 0
