"""A process of a job: `python -m threefs_bench.load.worker`, which the runner starts and talks to in lines of JSON.

    runner   the assignment; "go" when all processes are prepared; "stop"
    worker   {"event": "ready" | "begin" | "progress" | "done", ...}

It ends when the runner's end of the pipe closes, so a runner that is killed leaves nothing behind.
"""

import asyncio
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

import uvloop

from threefs.env.clock import CLOCK
from threefs.errors import InvalidArgument, ThreefsError
from threefs_bench.load.load_engine import Assignment, Engine
from threefs_bench.load.meta_engine import MetaEngine
from threefs_bench.load.native_engine import NativeEngine
from threefs_bench.load.posix_engine import PosixEngine
from threefs_bench.load.tally import Result, Spread
from threefs_bench.load.turns import Window

ENGINES: dict[str, Callable[[Assignment], Engine]] = {"native": NativeEngine, "posix": PosixEngine, "meta": MetaEngine}
#: As fio takes its samples of rates.
SAMPLE_S = 0.5
_MAX_LINE_BYTES = 1 << 20
_MAX_ERROR_CHARS = 500


class Worker:
    def __init__(self, part: Assignment) -> None:
        self._engine: Engine = ENGINES[part.job.engine](part)
        self._job = part.job
        self._result = Result()
        self._go = asyncio.Event()
        self._prepared = 0
        self._state = "prepare"
        self._begin_s = 0.0
        self._before: dict[str, tuple[int, int]] = {}
        self._usage: resource.struct_rusage | None = None
        self._grants: dict[str, float] = {}  # before the run

    def commands(self, text: bytes) -> None:
        """The message of the runner; nothing: it has gone."""
        if b"go" in text:
            self._go.set()
        if not text or b"stop" in text:
            self._engine.stop()
            self._go.set()

    async def run(self) -> Result:
        samples = asyncio.create_task(self._sample())
        try:
            await self._measure()
        except (ThreefsError, OSError, ValueError) as error:
            self._fail(error)
        finally:
            samples.cancel()
            self._state = "end"
            try:
                await self._engine.close()
            except (ThreefsError, OSError) as error:
                self._fail(error)
        return self._result

    def _fail(self, error: Exception) -> None:
        if not self._result.errno:
            self._result.errno = getattr(error, "errno", 0) or 22
            self._result.error = f"{type(error).__name__}: {error}"[:_MAX_ERROR_CHARS]

    async def _measure(self) -> None:
        await self._engine.prepare(self._count_prepared)
        send({"event": "ready"})
        await self._go.wait()
        window = Window.of(self._job, CLOCK.monotonic())
        self._state, self._begin_s = "run", window.begin_s
        ramp = asyncio.get_running_loop().call_later(window.begin_s - window.load_s, self._begin)
        try:
            await self._engine.run(window)
        finally:
            ramp.cancel()
            self._settle(window)
            send({"event": "measured"})
        self._state = "verify"
        begin_s = CLOCK.monotonic()
        done = len(self._engine.tallies)
        try:
            await self._engine.verify(begin_s)
        finally:
            for tally in self._engine.tallies[done:]:
                self._result.add_tally(tally)
                self._result.verify_ms = (CLOCK.monotonic() - begin_s) * 1e3

    def _count_prepared(self, amount: int) -> None:
        self._prepared += amount

    def _begin(self) -> None:
        """The ramp is over."""
        self._usage = resource.getrusage(resource.RUSAGE_SELF)
        self._grants = self._engine.grants()
        send({"event": "begin"})

    def _settle(self, window: Window) -> None:
        """Of the run: its counts, its time, and what it has cost this process."""
        for tally in self._engine.tallies:
            self._result.add_tally(tally)
        last_s = max((tally.last_s for tally in self._engine.tallies), default=0.0)
        result, before, after = self._result, self._usage, resource.getrusage(resource.RUSAGE_SELF)
        result.runtime_ms = result.process_ms = max(last_s - window.begin_s, 0.0) * 1e3
        if before is None:  # it ended within its ramp
            return
        result.user_s = after.ru_utime - before.ru_utime
        result.system_s = after.ru_stime - before.ru_stime
        result.switches = after.ru_nvcsw + after.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw
        result.major_faults = after.ru_majflt - before.ru_majflt
        result.peak_bytes = after.ru_maxrss << 10
        result.minor_faults = after.ru_minflt - before.ru_minflt
        result.grants = {name: count - self._grants.get(name, 0) for name, count in self._engine.grants().items()}

    async def _sample(self) -> None:
        """Tell the runner how far it is, and keep the rates of each interval of the run."""
        then_s = CLOCK.monotonic()
        while True:
            await CLOCK.sleep(SAMPLE_S)
            now_s = CLOCK.monotonic()
            counts = self._counts()
            if self._state == "run" and now_s >= self._begin_s:
                for kind, (operations, transferred) in counts.items():
                    before = self._before.get(kind, (0, 0))
                    took_s = now_s - max(then_s, self._begin_s)
                    bandwidth = (transferred - before[1]) / 1024 / took_s
                    self._result.bandwidth.setdefault(kind, Spread()).add(bandwidth)
                    self._result.rates.setdefault(kind, Spread()).add((operations - before[0]) / took_s)
            self._before, then_s = counts, now_s
            state = "ramp" if self._state == "run" and now_s < self._begin_s else self._state
            elapsed_s = max(now_s - self._begin_s, 0.0) if self._begin_s else 0.0
            send(
                {
                    "event": "progress",
                    "state": state,
                    "prepared": self._prepared,
                    "done": sum(tally.done for tally in self._engine.tallies),
                    "elapsed_s": elapsed_s,
                    "counts": {kind: list(count) for kind, count in counts.items()},
                }
            )

    def _counts(self) -> dict[str, tuple[int, int]]:
        """(operations, bytes) by kind, so far."""
        found: dict[str, tuple[int, int]] = {}
        for tally in self._engine.tallies:
            for name, kind in list(tally.kinds.items()):
                operations, transferred = found.get(name, (0, 0))
                found[name] = (operations + kind.operations, transferred + kind.bytes)
        return found


def send(event: dict[str, Any]) -> None:
    line = json.dumps(event).encode() + b"\n"
    while line:
        line = line[os.write(1, line) :]


async def _run(part: Assignment) -> None:
    worker = Worker(part)
    loop = asyncio.get_running_loop()

    def read() -> None:
        text = os.read(0, 4096)
        if not text:
            loop.remove_reader(0)
        worker.commands(text)

    loop.add_reader(0, read)
    result = await worker.run()
    send({"event": "done", "result": result.as_json()})


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the runner, which then says "stop"
    with open(0, "rb", buffering=0, closefd=False) as standard_input:
        line = standard_input.readline(_MAX_LINE_BYTES)
    try:
        part = Assignment.from_json(json.loads(line))
    except (InvalidArgument, ValueError) as error:
        sys.exit(f"the assignment cannot be read: {error}")
    uvloop.run(_run(part))


if __name__ == "__main__":
    main()
