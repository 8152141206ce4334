"""The store that the managers, or the meta services, of a simulation share: far away, serializable, durable.

Each request and each answer travels; whoever cannot reach it learns so after a while, and then may not know whether its
commit was made.
"""

import asyncio
from collections.abc import Callable, Mapping

from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.clock import SimClock
from tests.harness.simulated.loop import KERNEL, PROCESS, SimLoop
from threefs.env.clock import Clock
from threefs.errors import Conflict, MaybeCommitted, ThreefsError, TooOld, Unavailable
from threefs.kv.conflicts import History
from threefs.kv.memory import MemoryEngine, VersionedTable
from threefs.kv.transaction import BufferedTransaction

PATIENCE_S = 2.0
LATE_S = (0.1, 3 * PATIENCE_S)
_WINDOW_S = 10.0
_BEHIND_ALL = b"\xff" * 100


class SimKv(MemoryEngine):
    """threefs.kv.engine_api.Engine; the process that calls is found by its context."""

    def __init__(
        self,
        loop: SimLoop,
        random: SeededRandom,
        clock: Clock | None = None,
        *,
        late_dice: SeededRandom | None = None,
    ) -> None:
        super().__init__(clock=clock or SimClock(loop))
        self.delay_s = (0.0002, 0.001)
        self.blocked: set[str] = set()  # hosts that cannot reach it
        self.down = False  # nobody can reach it
        self.conflicts = 0.0  # the share of commits that fail without a reason
        self.unknown = 0.0  # the share of commits, done or not, of whose end nobody hears
        self.late = 0.0  # the share of these that reach the store long after whoever made them has given them up
        #: Told of each commit that a host has begun, until it says that it was the one.
        self.on_commit: dict[str, Callable[[BufferedTransaction], bool]] = {}
        self._loop = loop
        self._dice = random
        self._late_dice = late_dice or random
        self._mounted = 0  # how often another store has taken the place of this one

    def pairs(self) -> dict[bytes, bytes]:
        """All that is in it now."""
        return dict(self._table.scan(b"", _BEHIND_ALL, 0, False, self._history.version))

    def mount(self, pairs: Mapping[bytes, bytes]) -> None:
        """Another store takes the place of this one. What is on its way is lost. No process may use it."""
        self._mounted += 1
        self._history, self._table = History(_WINDOW_S), VersionedTable()
        self._changes.clear()
        now = self._clock.monotonic()
        version = self._history.record(tuple(pairs), now)
        for key, value in pairs.items():
            self._table.put(key, version, value)
            self._changes.append((now, version, key))

    async def arrive(self) -> None:
        await self._travel()

    async def confirm(self, attempt: BufferedTransaction) -> None:
        await self._travel()

    async def _travel(self) -> None:
        """There and back. Raises Unavailable."""
        host = _host()
        if not self._reachable(host):
            await self._wait_in_vain()
        await asyncio.sleep(self._dice.uniform(*self.delay_s))
        if not self._reachable(host):
            await self._wait_in_vain()

    async def _wait_in_vain(self) -> None:
        await asyncio.sleep(PATIENCE_S)
        raise Unavailable("the store cannot be reached")

    def _reachable(self, host: str | None) -> bool:
        return not self.down and host not in self.blocked

    async def commit(self, attempt: BufferedTransaction) -> None:
        host = _host()
        if not self._reachable(host):
            await self._wait_in_vain()
        process, mounted = PROCESS.get(), self._mounted
        answer: asyncio.Future[None] = self._loop.create_future()

        def late() -> None:
            if self._mounted == mounted and self._judge(attempt) is None:
                self._apply(attempt)

        def at_the_store() -> None:
            if self._mounted != mounted:
                return
            if process is not None and not process.alive and self._dice.chance(0.5):
                return  # the request was never sent
            if not self._reachable(host) and self._dice.chance(0.5):
                return  # it was lost
            error = self._judge(attempt)
            if self._dice.chance(self.unknown):
                if self.late and self._late_dice.chance(self.late):
                    self._loop.call_later(self._late_dice.uniform(*LATE_S), late, context=KERNEL)
                    return
                if error is None and self._dice.chance(0.5):
                    self._apply(attempt)
                return
            if error is None:
                self._apply(attempt)
            self._loop.call_later(self._dice.uniform(*self.delay_s), come_back, error, context=KERNEL)

        def come_back(error: Exception | None) -> None:
            if answer.done() or not self._reachable(host):
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(None)

        self._loop.call_later(self._dice.uniform(*self.delay_s), at_the_store, context=KERNEL)
        if host in self.on_commit and self.on_commit[host](attempt):
            del self.on_commit[host]
        try:
            async with asyncio.timeout(PATIENCE_S):
                await answer
        except TimeoutError:
            raise MaybeCommitted("no answer from the store") from None

    def _judge(self, attempt: BufferedTransaction) -> ThreefsError | None:
        """Why it cannot be applied. What is judged well is applied in the same step."""
        try:
            if self._history.newest(attempt.reads, attempt.version) > attempt.version:
                return Conflict()
        except TooOld as error:
            return error
        return Conflict("injected") if self._dice.chance(self.conflicts) else None


def _host() -> str | None:
    process = PROCESS.get()
    return None if process is None else process.host
