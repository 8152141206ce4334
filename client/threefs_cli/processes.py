"""Processes that outlive the command that started them, and that a later command finds again.

A pid alone does not identify a process: the kernel reuses pids. So the start time is kept with it, and signals go
through a pidfd of the process that was checked.
"""

import contextlib
import json
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_LOG_TAIL_BYTES = 2000
_DEAD_STATES = "ZX"  # states of a process that has ended


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    started_ticks: int  # clock ticks after the machine started


def start(command: Sequence[str], *, output: Path, log: Path, environment: Mapping[str, str]) -> Process:
    """Run `command` in a session of its own, standard output to the fresh file `output`, errors behind `log`."""
    write = os.O_WRONLY | os.O_CREAT
    pid = os.posix_spawn(
        command[0],
        list(command),
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(output), write | os.O_TRUNC, 0o600),
            (os.POSIX_SPAWN_OPEN, 2, str(log), write | os.O_APPEND, 0o600),
        ],
        setsid=True,
    )
    return of(pid)


def of(pid: int) -> Process:
    """The process that has this pid now. Raises ProcessLookupError."""
    found = _read_stat(pid)
    if found is None:
        raise ProcessLookupError(f"there is no process {pid}")
    return Process(pid, found[1])


def alive(process: Process) -> bool:
    """Whether this very process still runs."""
    found = _read_stat(process.pid)
    runs = found is not None and found[0] not in _DEAD_STATES and found[1] == process.started_ticks
    if not runs:  # reaped behind the look: it may have ended since any reaping before it
        with contextlib.suppress(ChildProcessError):  # not our child: another process reaps it
            os.waitpid(process.pid, os.WNOHANG)
    return runs


def send(process: Process, number: signal.Signals) -> bool:
    """Signal the process; False when it has ended already."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not alive(process):
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)


def last_log_line(log: Path) -> str:
    """The message of the last line of a log, for an error about the program that wrote it."""
    lines = log_tail(log).strip().splitlines()
    return _log_message(lines[-1]) if lines else "its log is empty"


def failure(name: str, log: Path) -> str:
    """Why a program has not started, as its log says it."""
    return f"{name} did not start: {last_log_line(log)} (log: {log})"


def log_tail(log: Path) -> str:
    return log.read_bytes()[-_LOG_TAIL_BYTES:].decode("utf-8", "replace") if log.exists() else ""


def _log_message(line: str) -> str:
    """Event (of etcd: msg), reason and error of a line in JSON; any other line as it is."""
    try:
        entry = json.loads(line)
    except ValueError:
        return line
    if not isinstance(entry, dict):
        return line
    return ": ".join(str(entry[name]) for name in ("event", "msg", "reason", "error") if name in entry) or line


def child_environment() -> dict[str, str]:
    """The environment of this process, with absolute paths: a program that it starts finds the same Python modules from
    any directory."""
    environment = dict(os.environ)
    if path := environment.get("PYTHONPATH", ""):
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(part) for part in path.split(os.pathsep))
    return environment


def _read_stat(pid: int) -> tuple[str, int] | None:
    """(state, start time in ticks) of the process that has this pid now; None: there is none."""
    try:
        content = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = content.rpartition(")")[2].split()  # the name before it may contain anything
    return fields[0], int(fields[19])
