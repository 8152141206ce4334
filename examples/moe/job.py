"""The ranks of a job as processes of this machine, and what they have noted."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_POLL_S = 0.05
#: Longer than the ranks need to notice that one of them is gone.
_END_S = 120.0


class JobFailedError(Exception):
    """It names the log of the rank."""


@dataclass(frozen=True, slots=True)
class Step:
    number: int
    loss: float  # exactly
    ranks: int  # that have computed it


def steps(losses: Path) -> list[Step]:
    """In the order in which they were made. After a resume some are there twice."""
    if not losses.exists():
        return []
    whole = losses.read_text(encoding="utf-8").rpartition("\n")[0]  # the last line may be in the middle of its writing
    lines = [json.loads(line) for line in whole.splitlines()]
    return [Step(line["step"], float.fromhex(line["loss"]), line["ranks"]) for line in lines]


class Job:
    """Ranks that run, from the moment that it is made."""

    def __init__(self, directory: Path, name: str, world: int, arguments: Sequence[str]) -> None:
        self._losses = directory / f"{name}.losses"
        self._logs = [directory / f"{name}-of-{world}-rank-{rank}.log" for rank in range(world)]
        self._begun_with = len(steps(self._losses))
        meeting = directory / f"meeting-{os.urandom(4).hex()}"
        common = [*arguments, "--losses", str(self._losses), "--meeting", str(meeting), "--world", str(world)]
        self.processes = []
        for rank, log in enumerate(self._logs):
            command = [sys.executable, "-m", "examples.moe.rank", *common, "--rank", str(rank)]
            with log.open("ab") as output:
                self.processes.append(subprocess.Popen(command, cwd=_ROOT, stdout=output, stderr=output))

    def wait_for_step(self, number: int) -> None:
        """Return when this job has made that step, or a later one."""
        self._wait(lambda: any(step.number >= number for step in steps(self._losses)[self._begun_with :]))

    def wait(self) -> None:
        """Return when all ranks have ended well."""
        self._wait(lambda: all(process.poll() == 0 for process in self.processes))

    def _wait(self, reached: Callable[[], bool]) -> None:
        try:
            self._poll(reached)
        except BaseException:
            self.kill()
            raise

    def _poll(self, reached: Callable[[], bool]) -> None:
        while not reached():
            for process, log in zip(self.processes, self._logs, strict=True):
                if process.poll() not in (None, 0):
                    tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:])
                    raise JobFailedError(f"a rank has failed; its log is {log}:\n{tail}")
            if all(process.poll() == 0 for process in self.processes) and not reached():
                raise JobFailedError(f"all ranks have ended; their logs are beside {self._logs[0]}")
            time.sleep(_POLL_S)

    def kill_rank(self, rank: int) -> None:
        """With SIGKILL. The others notice that, and end too."""
        self.processes[rank].kill()
        ends_at = time.monotonic() + _END_S
        while any(process.poll() is None for process in self.processes) and time.monotonic() < ends_at:
            time.sleep(_POLL_S)
        self.kill()

    def announce_end(self) -> None:
        """As a scheduler does: the ranks save, and end."""
        self.processes[-1].terminate()
        self.wait()

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
