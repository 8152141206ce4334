"""A manager over a store in memory, with a clock that the test moves."""

import asyncio
from collections.abc import Awaitable, Callable

from threefs_manager.election import Election
from threefs_manager.service import Manager

from tests.harness.clocks import SteppedClock
from tests.harness.seeded_random import SeededRandom
from threefs.background import cancel_and_wait
from threefs.env.clock import CLOCK
from threefs.kv.memory import MemoryEngine


class Bench:
    """Managers one after the other over one store."""

    def __init__(
        self, conflict_rate: float = 0.0, unknown_rate: float = 0.0, seed: int = 1, *, is_suspended: bool = False
    ) -> None:
        """`is_suspended`: managers take each step of the clock for a time in which they did not run."""
        self.clock = SteppedClock()
        self.dice = SeededRandom(seed)
        self.engine = MemoryEngine(
            random=self.dice, conflict_rate=conflict_rate, unknown_rate=unknown_rate, clock=self.clock
        )
        self.clusters: list[str] = []
        self._is_suspended = is_suspended
        self._started = 0
        self._running: list[asyncio.Task[None]] = []

    async def start(self) -> Manager:
        self._started += 1
        election = Election(
            self.engine, f"manager-{self._started}", length_s=1.0, exclusive=True, clock=CLOCK, random=self.dice
        )
        manager = Manager(
            self.engine,
            election,
            lease_s=10.0,
            clock=self.clock,
            random=self.dice,
            on_cluster=self.clusters.append,
        )
        running = asyncio.create_task(manager.run())
        self._running.append(running)
        await manager.leading.wait()
        if not self._is_suspended:
            assert manager._controller is not None
            manager._controller._give_time = lambda unheard_s: None  # type: ignore[method-assign]
        return manager

    async def stop(self) -> None:
        await cancel_and_wait(*self._running)


def run(body: Callable[[Bench, Manager], Awaitable[None]]) -> None:
    async def main() -> None:
        bench = Bench()
        await body(bench, await bench.start())
        await bench.stop()

    asyncio.run(main())
