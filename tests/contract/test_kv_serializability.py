"""Concurrent transactions have the effect of the same transactions one after another (invariant I9)."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.loop import SimLoop
from tests.sim.kv import SimKv
from threefs.env.random import RANDOM
from threefs.errors import Conflict
from threefs.kv import retry
from threefs.kv.engine_api import Engine, Transaction
from threefs.kv.etcd import EtcdEngine
from threefs.kv.memory import MemoryEngine
from threefs.kv.postgres import PostgresEngine
from threefs.kv.rocks import RocksEngine

KEYS = [b"a", b"b", b"c", b"d"]
keys = st.sampled_from(KEYS)
bounds = st.sampled_from([b"", *KEYS, b"z"])
steps = st.one_of(
    st.tuples(st.just("get"), keys),
    st.tuples(st.just("range"), bounds, bounds, st.integers(0, 2), st.booleans()),
    st.tuples(st.just("append"), keys),  # a value that depends on everything read so far
    st.tuples(st.just("clear"), keys),
    st.tuples(st.just("clear_range"), bounds, bounds, st.integers(1, 2)),
)
programs = st.lists(st.lists(steps, min_size=1, max_size=5), min_size=2, max_size=5)
Step = tuple[Any, ...]


@dataclass
class Model:
    """A dictionary, used by one transaction at a time."""

    pairs: dict[bytes, bytes] = field(default_factory=dict)

    async def get(self, key: bytes) -> bytes | None:
        return self.pairs.get(key)

    async def get_range(self, begin: bytes, end: bytes, *, limit: int, reverse: bool) -> list[tuple[bytes, bytes]]:
        found = sorted(((k, v) for k, v in self.pairs.items() if begin <= k < end), reverse=reverse)
        return found[:limit] if limit else found

    def set(self, key: bytes, value: bytes) -> None:
        self.pairs[key] = value

    def clear(self, key: bytes) -> None:
        self.pairs.pop(key, None)

    async def clear_range(self, begin: bytes, end: bytes, *, max_keys: int) -> bool:
        found = await self.get_range(begin, end, limit=0, reverse=False)
        for key, _ in found[:max_keys]:
            self.clear(key)
        return len(found) <= max_keys


async def perform(tx: Transaction | Model, step: Step, seen: list[Any], name: int) -> None:
    match step:
        case ("get", key):
            seen.append(await tx.get(key))
        case ("range", begin, end, limit, reverse):
            seen.append(await tx.get_range(begin, end, limit=limit, reverse=reverse))
        case ("append", key):
            tx.set(key, b"%d:%d:" % (name, len(seen)) + (await tx.get(key) or b"")[:100])
        case ("clear", key):
            tx.clear(key)
        case ("clear_range", begin, end, max_keys):
            seen.append(await tx.clear_range(begin, end, max_keys=max_keys))


@dataclass
class Run:
    """One program under way. `alone` is what it would see if it ran at its beginning and changed nothing."""

    tx: Transaction
    commits: int
    alone: list[Any] | None
    taken: int = 0
    seen: list[Any] = field(default_factory=list)


async def replay(program: list[Step], name: int, model: Model) -> list[Any]:
    seen: list[Any] = []
    for step in program:
        await perform(model, step, seen, name)
    return seen


async def begin(engine: Engine, program: list[Step], name: int, model: Model, commits: int) -> Run:
    tx = engine.begin()
    await tx.get(b"\xfe", snapshot=True)  # a store that is far away fixes the state at the first read
    copy = Model(dict(model.pairs))
    seen = await replay(program, name, copy)
    changes = any(step[0] in ("append", "clear") for step in program) or copy != model
    return Run(tx, commits, None if changes else seen)


async def check(engine: Engine, programs: list[list[Step]], schedule: list[int]) -> None:
    """Run the programs interleaved by `schedule`, then the committed ones in their order on the model."""
    rest = [name for name in range(len(programs)) for _ in range(7)]
    runs: dict[int, Run] = {}
    model, commits = Model(), 0
    for name in [name for name in schedule if name < len(programs)] + rest:
        program = programs[name]
        if name not in runs:
            runs[name] = await begin(engine, program, name, model, commits)
            continue
        run = runs[name]
        run.taken += 1
        if run.taken <= len(program):
            await perform(run.tx, program[run.taken - 1], run.seen, name)
        elif run.taken == len(program) + 1:
            try:
                await run.tx.commit()
            except Conflict:
                assert commits > run.commits, "a conflict with nobody"
                continue
            commits += run.alone is None
            assert run.seen == (await replay(program, name, model) if run.alone is None else run.alone)
    assert dict(await engine.begin().get_range(b"", b"\xff")) == model.pairs


async def memory(_: str) -> Engine:
    return MemoryEngine()


async def rocks(directory: str) -> Engine:
    return await RocksEngine.open(Path(directory) / "store")


async def sim(_: str) -> Engine:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    return SimKv(loop, SeededRandom(1))


async def etcd(addresses: str) -> Engine:
    return await EtcdEngine.open(addresses.split(","), name=RANDOM.token(4).hex())


async def postgres(url: str) -> Engine:
    engine = await PostgresEngine.open(url)
    await retry.run(engine, lambda tx: tx.clear_range(b"", b"\xff", max_keys=100))
    return engine


EXAMPLES: dict[Callable[[str], Awaitable[Engine]], int] = {memory: 300, rocks: 60, sim: 300, etcd: 40, postgres: 25}


@pytest.mark.parametrize("opened", EXAMPLES)
def test_transactions_are_serializable(
    opened: Callable[[str], Awaitable[Engine]], request: pytest.FixtureRequest
) -> None:
    where = ""
    if opened is etcd:
        where = ",".join(request.getfixturevalue("etcd").addresses)
    elif opened is postgres:
        where = request.getfixturevalue("postgres").schema(RANDOM.token(4).hex())

    @settings(max_examples=EXAMPLES[opened], deadline=None)
    @given(programs, st.lists(st.integers(0, 4), max_size=40))
    def run(program: list[list[Step]], schedule: list[int]) -> None:
        async def main() -> None:
            with tempfile.TemporaryDirectory() as directory:
                engine = await opened(where or directory)
                await check(engine, program, schedule)
                await engine.close()

        if opened is sim:
            SimLoop().run(main())
        else:
            asyncio.run(main())

    run()
