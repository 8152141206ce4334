"""Transactions per second of a metadata engine: like those of a create, writes of one key, reads of one key."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from threefs.env.clock import CLOCK
from threefs.errors import AlreadyExists
from threefs.kv import retry
from threefs.kv.dump import KEYS_END
from threefs.kv.engine_api import Engine, Transaction
from threefs.kv.engine_url import open_engine, parse
from threefs_bench.cost_meter import busy_s

IN_FLIGHT = (1, 64)
SECONDS = 3.0
_VALUE = b"v" * 120  # as large as an inode's record
_CLEAR_KEYS = 1000
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Rate:
    engine: str
    what: str
    in_flight: int
    per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: float  # of the whole machine, for each transaction


async def measure(url: str, *, seconds: float = SECONDS) -> list[Rate]:
    """Measure an empty store, and leave it empty. Raises AlreadyExists if it is not empty."""
    shown = str(parse(url))
    engine = await open_engine(parse(url))
    try:
        if await engine.begin().get_range(b"", KEYS_END, limit=1):
            raise AlreadyExists(f"{shown} is not empty; measure with an empty store")
        rates = []
        for what, step in (("create", _create), ("commit", _commit), ("get", _get)):
            for tasks in IN_FLIGHT:
                busy = busy_s()
                latencies = sorted(await _measure_latencies(engine, step, tasks, seconds)) or [seconds]
                middle, high = latencies[len(latencies) // 2], latencies[int(len(latencies) * 0.99)]
                cpu_us = (busy_s() - busy) / len(latencies) * 1e6
                rates.append(Rate(shown, what, tasks, len(latencies) / seconds, middle * 1e3, high * 1e3, cpu_us))
        await _empty(engine)
        return rates
    finally:
        await engine.close()


async def _measure_latencies(engine: Engine, step: Callable[..., Awaitable[None]], tasks: int, s: float) -> list[float]:
    """Latencies of the transactions that ended within `s` seconds."""
    end = CLOCK.monotonic() + s
    numbers = iter(range(10**9))
    latencies: list[float] = []

    async def work() -> None:
        while (begin := CLOCK.monotonic()) < end:
            once = functools.partial(step, number=next(numbers))
            await retry.run(engine, once, timeout_s=_TIMEOUT_S, replayable=True)
            now = CLOCK.monotonic()
            if now < end:
                latencies.append(now - begin)

    await asyncio.gather(*(work() for _ in range(tasks)))
    return latencies


async def _create(tx: Transaction, number: int) -> None:
    """Reads and writes of a create: the parent, the entry, the inode, and the time of the parent, which all creates
    set."""
    entry = b"DENT|parent|%d" % number
    await tx.get_many([b"INOD|parent", entry])
    tx.set(entry, _VALUE[:12])
    tx.set(b"INOD|%d" % number, _VALUE)
    tx.set(b"TIME|parent", b"%d" % number)


async def _commit(tx: Transaction, number: int) -> None:
    """One key, without a read."""
    tx.set(b"INOD|%d" % number, _VALUE)


async def _get(tx: Transaction, number: int) -> None:
    await tx.get(b"INOD|%d" % (number % 100))


async def _empty(engine: Engine) -> None:
    async def clear(tx: Transaction) -> bool:
        return await tx.clear_range(b"", KEYS_END, max_keys=_CLEAR_KEYS)

    while not await retry.run(engine, clear, timeout_s=_TIMEOUT_S, replayable=True):
        pass
