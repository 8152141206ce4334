import json
import subprocess
import sys

import pytest

from tests.harness.processes import environment
from threefs.errors import InvalidSettings
from threefs.telemetry import logs

SCRIPT = """
import structlog
from threefs.rpc.handshake import Identity
from threefs.telemetry import logs

before = structlog.get_logger()  # as modules do, when they are imported
logs.configure("threefs-test")
before.debug("not shown")
logs.identify(node_id=7)
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
    assert serving["node_id"] == failed["node_id"] == 7


LEVEL_SCRIPT = """
import asyncio, structlog, sys
from threefs.telemetry import logs

log = structlog.get_logger()
logs.configure("threefs-test", sys.argv[1])

async def main():
    go = asyncio.Event()

    async def speak():
        await go.wait()
        for level in ("debug", "info", "warning", "error"):
            getattr(log, level)(level)

    speaking = asyncio.create_task(speak())
    await asyncio.sleep(0)
    logs.identify(address="h:1")
    go.set()
    await speaking

asyncio.run(main())
"""


@pytest.mark.parametrize("level", logs.LEVELS)
def test_the_level_says_what_is_left_out(level: str) -> None:
    """Tasks that ran before the process knew its address say it too."""
    command = [sys.executable, "-c", LEVEL_SCRIPT, level]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    levels = list(logs.LEVELS)
    assert [line["level"] for line in lines] == levels[levels.index(level) :]
    assert {line["address"] for line in lines} == {"h:1"}


def test_a_level_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="log_level must be one of debug, info, warning, error, not 'loud'"):
        logs.configure("threefs-test", "loud")


CHANGE_SCRIPT = """
import structlog
from threefs.telemetry import logs

log = structlog.get_logger()
logs.configure("threefs-test")
for level in ("info", "debug", "error"):
    logs.set_level(level)
    log.debug("debug")
    log.warning("warning")
    log.error("error")
"""


def test_a_logger_that_was_used_takes_another_level() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHANGE_SCRIPT], capture_output=True, text=True, env=environment(), check=True
    )
    events = [json.loads(line)["event"] for line in done.stderr.splitlines()]
    assert events == ["warning", "error", "debug", "warning", "error", "error"]


RENUMBERED_SCRIPT = """
import asyncio, structlog
from types import SimpleNamespace
from threefs.cluster.daemon import serve_node
from threefs.telemetry import logs

logs.configure("threefs-test")

async def nothing():
    pass

async def main():
    node = SimpleNamespace(node_id=7, address="h:1", start=nothing, stop=nothing)
    stop = asyncio.Event()
    serving = asyncio.create_task(serve_node(node, stop))
    await asyncio.sleep(0.1)
    for node.node_id in (7, 8):
        structlog.get_logger().info("here")
    stop.set()
    await serving

asyncio.run(main())
"""


def test_a_node_that_gets_another_number_logs_under_that() -> None:
    """The manager forgets a meta service that is silent, and gives it a new number when it comes back."""
    command = [sys.executable, "-c", RENUMBERED_SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True)
    assert [json.loads(line)["node_id"] for line in done.stderr.splitlines() if "here" in line] == [7, 8]
