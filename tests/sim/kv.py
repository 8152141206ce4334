"""The store that the managers, or the meta services, of a simulation share: far away, serializable, durable.

Each request and each answer travels; whoever cannot reach it learns so after a while, and then may not know whether its
commit was made.
"""

import asyncio

from tests.sim.dice import SeededRandom
from tests.sim.loop import KERNEL, PROCESS, SimLoop
from threefs.errors import Conflict, MaybeCommitted, Unavailable
from threefs.kv.memory import MemoryEngine
from threefs.kv.transaction import BufferedTransaction

_PATIENCE_S = 2.0


class SimKv(MemoryEngine):
    """threefs.kv.port.Engine; the process that calls is found by its context."""

    def __init__(self, loop: SimLoop, random: SeededRandom) -> None:
        super().__init__(clock=_LoopClock(loop))
        self.delay_s = (0.0002, 0.001)
        self.blocked: set[str] = set()  # hosts that cannot reach it
        self.conflicts = 0.0  # the share of commits that fail without a reason
        self._loop = loop
        self._dice = random

    async def arrive(self) -> None:
        await self._travel()

    async def confirm(self, attempt: BufferedTransaction) -> None:
        await self._travel()

    async def _travel(self) -> None:
        """There and back. Raises Unavailable."""
        if self._cut_off():
            await asyncio.sleep(_PATIENCE_S)
            raise Unavailable("the store cannot be reached")
        await asyncio.sleep(self._dice.uniform(*self.delay_s))

    def _cut_off(self) -> bool:
        process = PROCESS.get()
        return process is not None and process.host in self.blocked

    async def commit(self, attempt: BufferedTransaction) -> None:
        process = PROCESS.get()
        if self._cut_off():
            await asyncio.sleep(_PATIENCE_S)
            raise Unavailable("the store cannot be reached")
        answer: asyncio.Future[None] = self._loop.create_future()

        def at_the_store() -> None:
            if process is not None and not process.alive and self._dice.chance(0.5):
                return  # the request was never sent
            error: Exception | None = None
            if self._history.newest(attempt.reads, attempt.version) > attempt.version:
                error = Conflict()
            elif self._dice.chance(self.conflicts):
                error = Conflict("injected")
            else:
                self._apply(attempt)
            self._loop.call_later(self._dice.uniform(*self.delay_s), come_back, error, context=KERNEL)

        def come_back(error: Exception | None) -> None:
            if answer.done() or (process is not None and process.host in self.blocked):
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(None)

        self._loop.call_later(self._dice.uniform(*self.delay_s), at_the_store, context=KERNEL)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await answer
        except TimeoutError:
            raise MaybeCommitted("no answer from the store") from None


class _LoopClock:
    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        return self._loop.time()

    def wall_ns(self) -> int:
        return int(self._loop.time() * 1e9)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
