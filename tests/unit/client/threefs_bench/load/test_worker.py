import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from threefs_bench.load.job import Job
from threefs_bench.load.load_engine import Assignment
from threefs_bench.load.tally import Result

from tests.harness.processes import environment

pytestmark = pytest.mark.processes


def launch(directory: Path, **given: Any) -> "subprocess.Popen[bytes]":
    options = {"name": "a", "ioengine": "posix", "directory": str(directory), "size": "64k", **given}
    part = Assignment(Job({name: str(value) for name, value in options.items()}, {}), 0, 0)
    process = subprocess.Popen(
        [sys.executable, "-m", "threefs_bench.load.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    tell(process, json.dumps(part.as_json()))
    return process


def tell(process: "subprocess.Popen[bytes]", line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line.encode() + b"\n")
    process.stdin.flush()


def until(process: "subprocess.Popen[bytes]", event: str) -> dict[str, Any]:
    assert process.stdout is not None
    for line in process.stdout:
        found: dict[str, Any] = json.loads(line)
        if found["event"] == event:
            return found
    raise AssertionError(f"no {event}")


def end(process: "subprocess.Popen[bytes]") -> Result:
    result = Result.from_json(until(process, "done")["result"])
    process.communicate(timeout=60)
    assert process.returncode == 0
    return result


def test_a_process_waits_for_go_and_tells_what_it_did(tmp_path: Path) -> None:
    process = launch(tmp_path, rw="write", fsync=4)
    until(process, "ready")
    assert not (tmp_path / "a.0.0").stat().st_size
    tell(process, "go")
    until(process, "begin")
    until(process, "measured")
    result = end(process)
    assert (
        result.operations == 16 and result.kinds["sync"].operations == 4 and result.runtime_ms > 0 and not result.errno
    )


def test_a_stop_ends_it_with_what_it_has(tmp_path: Path) -> None:
    process = launch(tmp_path, rw="randread", time_based=1, runtime=3600)
    until(process, "ready")
    tell(process, "go")
    while not until(process, "progress")["counts"]:
        pass
    tell(process, "stop")
    result = end(process)
    assert result.operations > 0 and not result.errno and result.rates["read"].count


def test_it_ends_when_its_runner_is_gone(tmp_path: Path) -> None:
    process = launch(tmp_path, rw="randread", time_based=1, runtime=3600)
    until(process, "ready")
    tell(process, "go")
    until(process, "begin")
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_an_error_comes_back_in_words(tmp_path: Path) -> None:
    result = end(launch(tmp_path / "absent"))
    assert result.errno == 2 and "FileNotFoundError" in result.error and "absent" in result.error


def test_an_assignment_that_cannot_be_read_is_one_line() -> None:
    command = [sys.executable, "-m", "threefs_bench.load.worker"]
    done = subprocess.run(command, input=b"nonsense\n", capture_output=True, env=environment(), timeout=60)
    assert done.returncode == 1 and done.stderr.startswith(b"the assignment cannot be read")
