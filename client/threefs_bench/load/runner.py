"""Runs jobs on this host: their processes, the phases between stonewalls, progress, and an end in any case."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from threefs_cli.processes import child_environment

from threefs.background import cancel_and_wait
from threefs.env.clock import CLOCK
from threefs.env.process_tuning import raise_descriptor_limit
from threefs.errors import InvalidArgument, ThreefsError
from threefs_bench.load.job import Job, phases
from threefs_bench.load.load_engine import Assignment
from threefs_bench.load.options import MAX_PROCESSES
from threefs_bench.load.service_cost import ServiceMeter, find_services
from threefs_bench.load.tally import Result

_MAX_LINE_BYTES = 32 << 20
_TAIL_BYTES = 2000
_CHECK_S = 0.5
#: A run in which nothing is transferred for so long is stopped.
STALL_S = 300.0
#: A process that was told to stop, and goes on, is killed.
GRACE_S = 30.0
_EIO = 5
#: The pipes of a process, and what else is open here.
_FILES_OF_PROCESS = 3
_SPARE_FILES = 64


@dataclass
class Snapshot:
    """How far a run is."""

    phase: int = 0
    phases: int = 1
    state: str = "prepare"  # that of the slowest process: prepare, ramp, run, verify, end
    fraction: float = 0.0  # of this phase
    ready: bool = False  # all processes of this phase are prepared, and wait for `release`
    prepared: int = 0  # bytes, or names
    counts: dict[str, list[int]] = field(default_factory=dict)  # kind -> operations, bytes

    def as_json(self) -> dict[str, Any]:
        return vars(self)


@dataclass
class Run:
    """The results of all processes of each job, and the CPU seconds of services in each phase, by role."""

    results: list[list[Result]]
    services: list[dict[str, float]] = field(default_factory=list)


Progress = Callable[[Snapshot], None]
#: Of a process, in their order.
STATES = ("prepare", "ramp", "run", "verify", "end")


class _Process:
    """One worker."""

    def __init__(self, part: Assignment, changed: Callable[["_Process", str], None]) -> None:
        self.part = part
        self.result: Result | None = None
        self.state = "prepare"
        self.prepared = 0
        self.done = 0  # operations, with those that are not measured
        self.elapsed_s = 0.0
        self.counts: dict[str, list[int]] = {}
        self._changed = changed
        self._process: asyncio.subprocess.Process | None = None

    async def follow(self) -> None:
        """Start it, and take in what it says until it ends."""
        command = (sys.executable, "-m", "threefs_bench.load.worker")
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            limit=_MAX_LINE_BYTES,
            env=child_environment(),
            start_new_session=True,
        )
        assert self._process.stdout is not None and self._process.stderr is not None
        complaints = asyncio.create_task(_tail(self._process.stderr))
        try:
            self.tell(json.dumps(self.part.as_json()))
            while line := await self._process.stdout.readline():
                self._hear(json.loads(line))
            code = await self._process.wait()
            if self.result is None:
                self.fail(f"the process ended with code {code}: {(await complaints) or 'it said nothing'}")
        finally:
            self.kill()
            await cancel_and_wait(complaints)

    def _hear(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "progress":
            self.state, self.prepared, self.elapsed_s = event["state"], event["prepared"], event["elapsed_s"]
            self.done, self.counts = event["done"], event["counts"]
        elif kind == "done":
            self.result, self.state = Result.from_json(event["result"]), "end"
        self._changed(self, kind)

    def tell(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(line.encode() + b"\n")

    def fail(self, message: str) -> None:
        self.result, self.state = Result(errno=_EIO, error=message), "end"
        self._changed(self, "done")

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    @property
    def fraction(self) -> float:
        job = self.part.job
        if self.state in ("verify", "end"):
            return 1.0
        timed = self.elapsed_s / job["runtime"] if job["runtime"] else 0.0
        if job["time_based"]:
            return min(timed, 1.0)
        operations = sum(count for kind, (count, _) in self.counts.items() if kind != "sync")
        transferred = sum(size for _, size in self.counts.values())
        moved = operations / job.files if job.engine == "meta" else transferred / job.pass_bytes
        return min(max(timed, moved), 1.0)


class _Pipe(Protocol):
    async def read(self, most: int, /) -> bytes: ...


async def _tail(stream: _Pipe) -> str:
    """The last line of what a process complains about."""
    kept = b""
    while part := await stream.read(_TAIL_BYTES):
        kept = (kept + part)[-_TAIL_BYTES:]
    lines = kept.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""


class Runner:
    def __init__(
        self,
        jobs: Sequence[Job],
        progress: Progress,
        *,
        host: str = "",
        key_file: str = "",
        stall_s: float = STALL_S,
        hold: bool = False,
    ) -> None:
        """With `hold` the load of each phase begins when `release` is called, for several hosts that begin together."""
        total = sum(job.processes for job in jobs)
        if total > MAX_PROCESSES:
            raise InvalidArgument(f"all jobs together have {total} processes, and {MAX_PROCESSES} are the most")
        self._jobs = jobs
        self._progress = progress
        self._host = host
        self._key_file = key_file
        self._stall_s = stall_s
        self._hold = hold
        self._stopped = self._stalled = False
        self._processes: list[_Process] = []
        self._meter = ServiceMeter(())
        self._measuring = False
        self._snapshot = Snapshot()

    async def run(self) -> Run:
        """Raises InvalidArgument for more processes than this one may have pipes to, and OSError."""
        run = Run([[] for _ in self._jobs])
        numbers = phases(self._jobs)
        _make_room(max(sum(self._jobs[number].processes for number in members) for members in numbers))
        for phase, members in enumerate(numbers):
            if self._stopped:
                break
            self._snapshot = Snapshot(phase, len(numbers))
            run.services.append(await self._run_phase(members))
            for process in self._processes:
                assert process.result is not None, "it has ended"
                if self._stalled and not process.result.errno:
                    process.result.errno = _EIO
                    process.result.error = f"the run was stopped: nothing was transferred for {self._stall_s:.0f} s"
                run.results[process.part.number].append(process.result)
        return run

    def stop(self) -> None:
        """End soon, with what was measured so far. A second call kills the processes."""
        for process in self._processes:
            if self._stopped:
                process.kill()
            process.tell("stop")
        self._stopped, self._snapshot.ready = True, False

    def release(self) -> None:
        """Let the processes begin, which are all prepared."""
        self._snapshot.ready = False
        for process in self._processes:
            process.tell("stop" if self._stopped else "go")

    async def _run_phase(self, members: Sequence[int]) -> dict[str, float]:
        """CPU seconds of the services, by role."""
        self._meter = ServiceMeter(await self._services([self._jobs[number] for number in members]))
        self._measuring, self._services_cpu = False, dict[str, float]()
        self._waiting = sum(self._jobs[number].processes for number in members)  # that are not prepared
        self._unmeasured = self._waiting  # that have not ended their measurement
        self._processes = [
            _Process(Assignment(self._jobs[number], number, process, self._host, self._key_file), self._changed)
            for number in members
            for process in range(self._jobs[number].processes)
        ]
        watch = asyncio.create_task(self._watch())
        try:
            async with asyncio.TaskGroup() as group:
                for process in self._processes:
                    group.create_task(process.follow())
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            await cancel_and_wait(watch)
        self._report()
        return self._services_cpu

    async def _services(self, jobs: Sequence[Job]) -> list[Any]:
        """Of the first cluster that is named; none where it cannot be asked: then the workers say why."""
        for job in jobs:
            if job["address"]:
                try:
                    return await find_services(job["address"], self._key_file)
                except (ThreefsError, OSError):
                    return []
        return []

    def _changed(self, process: _Process, event: str) -> None:
        if event == "ready":
            self._waiting -= 1
            if not self._waiting and self._hold and not self._stopped:
                self._snapshot.ready = True
            elif not self._waiting:
                self.release()
        elif event == "begin" and not self._measuring:
            self._measuring = True
            self._meter.begin()
        elif event == "measured":
            self._unmeasured -= 1
            if not self._unmeasured:
                self._services_cpu = self._meter.end()
        elif event == "done" and self._waiting and not self._stopped:  # it could not be prepared, and the others wait
            self.stop()

    async def _watch(self) -> None:
        """Report the progress; stop a run that stands still, and kill what does not stop."""
        moved_s = CLOCK.monotonic()
        stopped_s: float | None = None
        last: object = None
        while True:
            await CLOCK.sleep(_CHECK_S)
            now_s = CLOCK.monotonic()
            self._report()
            amounts = [(process.prepared, process.done, process.state) for process in self._processes]
            if amounts != last or self._snapshot.ready:  # other hosts may take longer to prepare
                last, moved_s = amounts, now_s
            if now_s - moved_s > self._stall_s and not self._stopped:
                self._stalled = True
                self.stop()
            if self._stopped and stopped_s is None:
                stopped_s = now_s
            if stopped_s is not None and now_s - stopped_s > GRACE_S:
                for process in self._processes:
                    process.kill()

    def _report(self) -> None:
        snapshot, processes = self._snapshot, self._processes
        snapshot.state = min((process.state for process in processes), key=STATES.index)
        snapshot.fraction = sum(process.fraction for process in processes) / len(processes)
        snapshot.prepared = sum(process.prepared for process in processes)
        snapshot.counts = {}
        for process in processes:
            for kind, (operations, transferred) in process.counts.items():
                before = snapshot.counts.get(kind, [0, 0])
                snapshot.counts[kind] = [before[0] + operations, before[1] + transferred]
        self._progress(snapshot)


def _make_room(processes: int) -> None:
    """Open files of this process for the pipes to others. It is asked before, because the event loop has no words for
    the error of a pipe."""
    raise_descriptor_limit()
    needed, most = processes * _FILES_OF_PROCESS + _SPARE_FILES, os.sysconf("SC_OPEN_MAX")
    if needed > most:
        raise InvalidArgument(
            f"{processes} processes at once need {needed} open files here, and {most} are allowed: raise `ulimit -n`, "
            "or lower numjobs"
        )
