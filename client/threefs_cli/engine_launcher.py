"""Starts those processes of a local cluster's engine that do not run, and waits until the engine answers."""

from collections.abc import Callable, Sequence
from pathlib import Path

from threefs.env.clock import Clock
from threefs.errors import StrangeStore, Unavailable
from threefs_cli import cluster_file, local_engines, processes
from threefs_cli.cluster_file import ClusterFile, Program
from threefs_cli.local_engines import LocalEngine

_POLL_S = 0.2


class EngineLauncher:
    """For the cluster in `directory`, whose programs are those of `state`, with its engine."""

    def __init__(self, engine: LocalEngine, directory: Path, state: ClusterFile, *, new: bool, clock: Clock) -> None:
        """`new`: the cluster has no data yet."""
        self.state = state
        self._engine = engine
        self._directory = directory
        self._new = new
        self._clock = clock

    async def start(self, stores: Sequence[str], timeout_s: float, progress: Callable[[str], None]) -> list[str]:
        """Returns what is wrong with processes that can be missed.

        Raises Unavailable, NotFound, PermissionDenied, InvalidSettings.
        """
        self._engine.check()
        before = [program.name for program in self.state.engine if program.runs]
        lost = self._launch_missing()
        deadline = self._clock.monotonic() + timeout_s
        while True:
            ended = [program for program in self.state.engine if not program.runs]
            failures = [
                lost.get(program.name) or processes.failure(program.name, self._log(program)) for program in ended
            ]
            if not self._engine.may_lack(ended):
                self._relaunch(ended, "; ".join(failures))
            try:
                await self._engine.make_stores(self.state, stores, deadline - self._clock.monotonic())
                await local_engines.answers(self._engine.url(self.state, stores[0]))
                break
            except Unavailable as error:
                if self._clock.monotonic() > deadline:
                    raise Unavailable(f"the engine was not ready after {timeout_s:.0f} s: {error}") from None
            await self._clock.sleep(_POLL_S)
        for program in self.state.engine:
            if program.runs and program.name not in before:
                failures += await self._await_answer(program, stores[0], deadline)
                progress(f"{program.name} serves at {program.addresses[0]}")
        return failures

    async def _await_answer(self, program: Program, store: str, deadline: float) -> list[str]:
        """Wait until this process answers as well: only then may another one be missed. Returns why it does not."""
        while True:
            try:
                await local_engines.answers(self._engine.url(self.state, store, program))
                return []
            except Unavailable as error:
                if not program.runs:
                    return [processes.failure(program.name, self._log(program))]
                if self._clock.monotonic() > deadline:
                    return [f"{program.name} does not answer: {error}"]
            await self._clock.sleep(_POLL_S)

    def _launch_missing(self) -> dict[str, str]:
        """Returns which processes have lost their data, and what to do."""
        lost = {}
        for program in self.state.engine:
            if not program.runs:
                try:
                    self._launch(program)
                except StrangeStore as error:
                    lost[program.name] = error.message
        return lost

    def _launch(self, program: Program) -> None:
        home = self._directory / program.name
        home.mkdir(exist_ok=True, mode=0o700)
        launched = local_engines.launch(self._engine, self.state, program, home, new=self._new)
        self.state = self.state.replace(launched)
        cluster_file.save(self._directory, self.state)

    def _relaunch(self, ended: Sequence[Program], failure: str) -> None:
        """Launch processes again that have ended for a reason that passes. Raises Unavailable for any other reason."""
        for program in ended:
            if program.process is None or not self._engine.retries(processes.log_tail(self._log(program))):
                raise Unavailable(failure)
            self._launch(program)

    def _log(self, program: Program) -> Path:
        return self._directory / program.name / "log"
