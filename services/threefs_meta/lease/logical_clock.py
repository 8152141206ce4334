"""Logical time that all meta services share, counted in ticks: clocks are never compared.

The tick is a number in the store. A service that has seen the same number for the length of a tick, on its own
monotonic clock, may raise it by one. So a tick never lasts shorter than that, however many services count. It lasts
longer while no service runs: then no lease of a client ends because services were silent.

The service that raised the tick does the work of that tick (`lease/lease_reaper.py`). So the work is done once, and by
another service when one dies.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from threefs.env.clock import Clock
from threefs.env.random import Random
from threefs.errors import ThreefsError
from threefs.kv import retry
from threefs.kv.engine_api import Engine, Transaction
from threefs.leases import TICKS_PER_LEASE, client_lease_s
from threefs_meta.store import keys
from threefs_meta.store.counters import increase, read_counter

_POLLS_PER_TICK = 4

T = TypeVar("T")

_LOG = structlog.get_logger()


class LogicalClock:
    def __init__(self, engine: Engine, lease_s: Callable[[], float], *, clock: Clock, random: Random) -> None:
        """`lease_s` returns T, the lease time of the cluster, once that is known."""
        self.tick = 0  # as last seen; the true one may be higher
        self._engine = engine
        self._lease_s = lease_s
        self._clock = clock
        self._random = random
        self._tick_seen_at = self._polled_at = clock.monotonic()

    @property
    def tick_s(self) -> float:
        return client_lease_s(self._lease_s()) / TICKS_PER_LEASE

    def stamp(self) -> int:
        """A number that is not lower than the true tick. It does not ask the store, because every change needs a stamp.
        The clock must have been polled once before, and a transaction has to `catch_up` first."""
        return self.tick + 1 + int((self._clock.monotonic() - self._polled_at) / self.tick_s)

    async def poll(self) -> bool:
        """Read the tick, and raise it if it has lasted long enough. True if this service has raised it."""
        await self._look()
        seen = self.tick
        if self._clock.monotonic() - self._tick_seen_at < self.tick_s:
            return False
        if not await self._run(lambda tx: _raise_tick(tx, seen)):
            return False
        if self.tick <= seen:  # else a request has looked meanwhile (`catch_up`)
            self.tick, self._tick_seen_at = seen + 1, self._clock.monotonic()
        return True

    async def catch_up(self) -> None:
        """Read the tick if that has failed for as long as one lasts. No tick was counted while the store was away, but
        a stamp would count them all: what is stamped so would be due, and a lease would end, later by that time."""
        if self._clock.monotonic() - self._polled_at >= self.tick_s:
            await self._look()

    async def _look(self) -> None:
        began = self._clock.monotonic()
        number = await self._run(lambda tx: read_counter(tx, keys.TICK))
        if began < self._polled_at:
            return  # a later look was answered sooner
        self._polled_at = began
        if number != self.tick:
            self.tick, self._tick_seen_at = number, self._clock.monotonic()

    async def _run(self, function: Callable[[Transaction], Awaitable[T]]) -> T:
        return await retry.run(self._engine, function, clock=self._clock, random=self._random, replayable=True)

    async def run(self, on_tick: Callable[[], None]) -> None:
        """Count until cancelled; `on_tick` is called when this service has raised the tick."""
        while True:
            await self._clock.sleep(self.tick_s / _POLLS_PER_TICK)
            try:
                if await self.poll():
                    on_tick()
            except ThreefsError as error:
                _LOG.info("the logical clock cannot be read or raised now", error=str(error))


async def _raise_tick(tx: Transaction, seen: int) -> bool:
    """`seen`: the tick that has lasted long enough. What was seen since, between two attempts, has not."""
    if await read_counter(tx, keys.TICK) != seen:
        return False  # another service did, or this one in an attempt of unknown outcome
    await increase(tx, keys.TICK, 1)
    return True
