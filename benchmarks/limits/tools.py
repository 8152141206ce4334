"""The limits of this machine, for threefs to be compared with: plain programs that do the same work, and fio.

The programs in C are compiled where they run. What is missing (gcc, fio) is said in words, and its rows are left out.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import google_crc32c

from benchmarks.measurements import LeftOutError, Sample

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
_TIMEOUT_S = 120.0
SERVERS = 3  # as many as the cluster has storage processes


def crc32c_library() -> Path:
    """The shared library that threefs computes CRC32C with, for the programs in C."""
    beside = Path(google_crc32c.__file__).parents[1] / "google_crc32c.libs"
    found = sorted(beside.glob("libcrc32c*.so*"))
    if not found:
        raise LeftOutError("the package google-crc32c has no shared library of its own here")
    return found[0]


def compile_tool(name: str, scratch: Path) -> Path:
    """Compile `name`.c, once for each scratch directory. Raises LeftOutError."""
    program = scratch / name
    if program.exists():
        return program
    if shutil.which("gcc") is None:
        raise LeftOutError("gcc is not installed")
    command = ["gcc", "-O2", "-o", str(program), str(_HERE / f"{name}.c"), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    if done.returncode:
        raise LeftOutError(f"gcc: {done.stderr.strip().splitlines()[-1]}")
    return program


def work_equal(
    language: str, family: str, file: Path, scratch: Path, *, seconds: float, pieces: int, length: int, depth: int
) -> Sample:
    """Reads of `pieces` pieces of `length` bytes from three processes, `depth` requests in flight at each.

    `language` is c or python, `family` tcp or unix. The amount is in bytes. Raises LeftOutError, OSError.
    """
    span = file.stat().st_size
    program = _work_equal_program(language, scratch)
    # Pieces of 1 MiB in sequence; small ones apart by a prime number of blocks, so that they meet all of the file.
    stride = length if pieces == 1 and length > 4096 else 7919 * length
    with ExitStack() as stack:
        servers = [stack.enter_context(_Server(program, file, family, number)) for number in range(SERVERS)]
        load = [seconds, pieces, length, depth, span, stride, family, *(server.address for server in servers)]
        found = _run([*program.command, "read", *program.library, *map(str, load)])
    if found["wrong"]:
        raise OSError(f"{found['wrong']} of {found['pieces']} pieces had a wrong checksum")
    return Sample(found["bytes"], found["seconds"], found["cpu_s"])


def messages(scratch: Path, *, seconds: float, length: int, depth: int) -> Sample:
    """Small messages over a TCP connection of the loopback; a request and its answer are two."""
    found = _run([str(compile_tool("messages", scratch)), str(seconds), str(length), str(depth)])
    return Sample(found["messages"], found["seconds"], found["cpu_s"])


@dataclass(frozen=True, slots=True)
class _Program:
    command: list[str]
    library: list[str]  # of the CRC32C, where the program has to be told


def _work_equal_program(language: str, scratch: Path) -> _Program:
    if language == "c":
        return _Program([str(compile_tool("work_equal", scratch))], [str(crc32c_library())])
    return _Program([sys.executable, "-m", "benchmarks.limits.work_equal"], [])


class _Server:
    """A process that serves one connection; it ends with it."""

    def __init__(self, program: _Program, file: Path, family: str, number: int) -> None:
        name = f"threefs-work-equal-{os.getpid()}-{number}" if family == "unix" else "0"
        self._command = [*program.command, "serve", *program.library, str(file), family, name]
        self.address = ""

    def __enter__(self) -> "_Server":
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True, cwd=_ROOT)
        out: IO[str] | None = self._process.stdout
        assert out is not None
        self.address = out.readline().strip()
        if not self.address:
            raise OSError(f"{self._command[0]} serve ended with {self._process.wait(_TIMEOUT_S)}")
        return self

    def __exit__(self, *_failure: object) -> None:
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _run(command: Sequence[str]) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, cwd=_ROOT)
    if done.returncode:
        raise OSError(f"{Path(command[0]).name} ended with {done.returncode}: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
