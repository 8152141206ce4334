import asyncio
import shutil
import subprocess
import sys

import pytest

from tests.harness.processes import environment
from threefs.env.clock import CLOCK

SUSPENDED_S = 1_000_000


def test_monotonic_time_does_not_go_back_and_sleep_lets_it_pass() -> None:
    before = CLOCK.monotonic()
    asyncio.run(CLOCK.sleep(0.001))
    assert CLOCK.monotonic() > before
    assert CLOCK.wall_ns() > 1_600_000_000 * 10**9


def test_a_suspended_machine_lets_time_pass() -> None:
    """In a namespace of time whose machine was suspended for days. CLOCK_MONOTONIC stood still meanwhile, and by it a
    lease of before the suspension would still be held."""
    code = "import time; from threefs.env.clock import CLOCK; print(CLOCK.monotonic() - time.monotonic())"
    inside = ["unshare", "--user", "--map-root-user", "--time", f"--boottime={SUSPENDED_S}"]
    if shutil.which("unshare") is None or subprocess.run([*inside, "true"], capture_output=True).returncode:
        pytest.skip("this machine makes no namespaces of time")
    done = subprocess.run(
        [*inside, sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True
    )
    assert float(done.stdout) > SUSPENDED_S - 60
