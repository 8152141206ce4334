import json
import subprocess
import sys

from tests.support.processes import environment

SCRIPT = """
import structlog
from threefs.rpc.identity import Identity
from threefs.telemetry import logs

before = structlog.get_logger()  # as modules do, when they are imported
logs.configure("threefs-test")
before.debug("not shown")
before.info("serving", address="h:1", identity=Identity("c", "d", "the-secret", "p"))
try:
    1 / 0
except ZeroDivisionError:
    before.exception("failed")
"""


def test_a_line_is_an_object_with_time_level_program_and_no_secret() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment(), check=True)
    assert done.stdout == "", "standard output is for the `ready` line"
    serving, failed = (json.loads(line) for line in done.stderr.splitlines())
    assert (serving["event"], serving["level"], serving["program"]) == ("serving", "info", "threefs-test")
    assert serving["address"] == "h:1" and serving["timestamp"].endswith("Z")
    assert "the-secret" not in done.stderr
    assert failed["level"] == "error" and "ZeroDivisionError" in failed["exception"]
