"""Measures other file systems by a harness outside this project: programs that are called by path.

    HARNESS/peers.py install|up|exec|down NAME --dir DIR    three copies, every copy synced
    HARNESS/mountbench.py --mount DIR --only GROUP,... --json FILE

Inside the same `exec`, `python -m threefs_bench mount DIR --apart` measures them with many calls in flight.

A peer that does not start, or fails during the measurement, is reported with the reason.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from threefs_bench.mount import Row

NAMES = ("seaweedfs", "juicefs", "moosefs", "glusterfs")
COPIES = 3
_INSTALL_S = 600
_UP_S = 150
_DOWN_S = 90
_REASON_CHARS = 300
#: They get no more of our environment: one of them takes PEERS, which make has exported, for an option of its own.
_PROGRAMS = ("peers.py", "mountbench.py")
_ENVIRONMENT = ("PATH", "HOME", "LANG", "TMPDIR")


class PeerFailedError(Exception):
    """Why there are no figures."""


class HarnessDirectory(click.Path):
    """An option of a command: the directory with the programs of the harness."""

    def __init__(self) -> None:
        super().__init__(exists=True, file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        directory = Path(os.fsdecode(super().convert(value, param, ctx)))
        for program in _PROGRAMS:
            if not (directory / program).is_file():
                self.fail(f"Directory {str(directory)!r} has no {program}, so it is not the harness.", param, ctx)
        return directory


HARNESS = HarnessDirectory()


@dataclass(frozen=True, slots=True)
class Harness:
    programs: Path
    work: Path  # a directory for what peers are made of, and for their data; large
    quick: bool
    timeout_s: float

    def measure(self, mount: Path, label: str, inside: Sequence[str] = ()) -> list[Row]:
        """Rates of metadata on a mounted directory; `inside` is a command that runs others where it can be seen.
        Raises PeerFailedError."""
        rows = self.rows(mount, label, ("metadata",), inside)
        return [*map(_row, rows), *self._measure_apart(mount, inside)]

    def rows(self, mount: Path, label: str, groups: Sequence[str], inside: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Rows of mountbench for groups of its loads. Raises PeerFailedError."""
        self.work.mkdir(parents=True, exist_ok=True)
        file = self.work / f"{label}.json"
        file.unlink(missing_ok=True)
        command = [sys.executable, str(self.programs / "mountbench.py"), "--mount", str(mount), "--label", label]
        command += ["--only", ",".join(groups), "--json", str(file), *(["--quick"] if self.quick else [])]
        _run([*inside, *command], self.timeout_s)
        found: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["results"]
        if failed := [row["error"] for row in found if "error" in row]:
            raise PeerFailedError(str(failed[0])[:_REASON_CHARS])
        return found

    def _measure_apart(self, mount: Path, inside: Sequence[str]) -> list[Row]:
        """With many calls in flight: that the harness does not measure."""
        command = [sys.executable, "-m", "threefs_bench", "mount", str(mount), "--apart", "--json"]
        command += ["--files", "1000"] if self.quick else []
        printed = _run([*inside, *command], self.timeout_s, {"PYTHONPATH": os.pathsep.join(sys.path)})
        return [Row(**row) for row in json.loads(printed)]

    def install(self, name: str) -> None:
        """Once; it is kept for later runs. Raises PeerFailedError."""
        done = self.work / name / "installed"
        if not done.exists():
            self._peer("install", name, _INSTALL_S)
            done.touch()

    def measure_peer(self, name: str) -> list[Row]:
        """Bring it up, measure, take it down, with all its data. Raises PeerFailedError."""
        with self.peer(name) as (mount, inside):
            return self.measure(mount, name, inside)

    @contextmanager
    def peer(self, name: str) -> Iterator[tuple[Path, list[str]]]:
        """A running peer: its mount, and the command that runs others where that can be seen. Its data are removed.
        Raises PeerFailedError."""
        try:
            self._peer("up", name, _UP_S, "--copies", str(COPIES), "--durability", "fsync")
            yield self.work / name / "mnt", [*self._command("exec", name), "--"]
        finally:
            self._peer("down", name, _DOWN_S, "--purge")

    def _command(self, action: str, name: str) -> list[str]:
        return [sys.executable, str(self.programs / "peers.py"), action, name, "--dir", str(self.work / name)]

    def _peer(self, action: str, name: str, timeout_s: float, *options: str) -> None:
        (self.work / name).mkdir(parents=True, exist_ok=True)
        _run([*self._command(action, name), *options], timeout_s)


def _run(command: Sequence[str], timeout_s: float, more: Mapping[str, str] = MappingProxyType({})) -> str:
    """The text that it prints. `more` is for its environment."""
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ} | dict(more)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env=environment)
    except subprocess.TimeoutExpired:
        raise PeerFailedError(f"no end after {timeout_s:.0f} s") from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise PeerFailedError(last[:_REASON_CHARS])
    return done.stdout


def _row(found: Mapping[str, Any]) -> Row:
    """Of mountbench's, under the names that threefs_bench.mount gives."""
    return Row(
        name=str(found["name"]).removeprefix("meta_"),
        per_s=float(found["value"]),
        p50_ms=float(found["p50_ms"]),
        p99_ms=float(found["p99_ms"]),
        cpu_s_per_1000=float(found.get("cpu_s_per_kop", 0.0)),
        operations=int(found["ops"]),
    )
