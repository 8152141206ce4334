"""A plugin of pytest that plants a bug before any test is imported: `-p tests.sim.planted.under_pytest`, with the name
of the bug in the environment."""

import os
import re
import subprocess
import sys
from pathlib import Path

VARIABLE = "THREEFS_PLANTED"
_ROOT = Path(__file__).parents[3]
_TIMEOUT_S = 100.0
_FAILED = 1  # what pytest ends with if a test has failed


def pytest_configure() -> None:
    from tests.sim.planted.catalog import PLANTED

    PLANTED[os.environ[VARIABLE]]()


def failure_of(test: str, bug: str) -> str:
    """How the test fails with that bug in place; "" if it passes. Raises RuntimeError: it could not be run."""
    command = [sys.executable, "-m", "pytest", "-x", "-n", "0", "-p", "no:cacheprovider", "-p", __name__, "--tb=line"]
    try:
        done = subprocess.run(
            [*command, test],
            cwd=_ROOT,
            env=os.environ | {VARIABLE: bug},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "I13: the test does not end"
    failed = done.returncode == _FAILED and re.search(r"\b\d+ (failed|error)", done.stdout) is not None
    if done.returncode and not failed:
        raise RuntimeError(f"{test} cannot be run: {done.stdout[-2000:]}")
    told = [line for line in done.stdout.splitlines() if line.startswith(("E ", "FAILED", "ERROR", "/"))]
    return "" if not failed else "the test fails: " + (told or done.stdout.splitlines())[0]
