import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from threefs_storage.engine.content import Kind

from tests.support.chunk_engine import opened, put, read_all
from tests.support.chunk_machine import CHUNK_BYTES, Machine
from threefs.ids import ChunkId

CHUNK = ChunkId(7, 0)

chunks = st.builds(ChunkId, st.just(7), st.integers(0, 3))
lengths = st.one_of(st.sampled_from([0, 1, 4096, 65536, 65537, CHUNK_BYTES // 2]), st.integers(0, CHUNK_BYTES // 2))
changes = st.tuples(chunks, st.sampled_from(list(Kind)), lengths, lengths)
steps = st.one_of(
    st.tuples(st.just("stage"), st.lists(changes, min_size=1, max_size=4, unique_by=lambda change: change[0])),
    st.tuples(st.just("write"), st.lists(changes, min_size=1, max_size=4, unique_by=lambda change: change[0])),
    st.tuples(st.just("commit"), chunks),
    st.tuples(st.just("commit"), chunks),
    st.tuples(st.just("drop"), chunks),
    st.tuples(st.just("power"), st.just(None)),
    st.tuples(
        st.just("crash"),
        st.tuples(st.lists(changes, min_size=1, max_size=4, unique_by=lambda change: change[0]), st.integers(0, 25)),
    ),
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32), plan=st.lists(steps, max_size=25))
def test_no_acknowledged_version_is_lost_whenever_the_power_fails(seed: int, plan: list[tuple[str, Any]]) -> None:
    async def main() -> None:
        machine = Machine(seed)
        await machine.open()
        for name, argument in plan:
            await step(machine, name, argument)
            await machine.check()

    asyncio.run(main())


async def step(machine: Machine, name: str, argument: Any) -> None:
    if name == "commit":
        machine.commit(argument)
    elif name == "drop":
        machine.drop(argument)
    elif name == "power":
        await machine.fail_power()
    else:
        todo, fail_after = argument if name == "crash" else (argument, None)
        await machine.together([machine.stage(*change) for change in todo], fail_after)
        if name == "write":
            for chunk, *_ in todo:
                machine.commit(chunk)


@pytest.mark.parametrize("length", [1, 100, 4096, 65535, 65536, 100_000, 1 << 20, (1 << 20) - 5])
def test_what_was_written_is_read_back_after_reopening(tmp_path: Path, length: int) -> None:
    data = bytes(range(256)) * (length // 256) + bytes(range(length % 256))

    async def main() -> None:
        async with opened(tmp_path) as engine:
            await put(engine, CHUNK, data)
            assert await read_all(engine, CHUNK) == data
        async with opened(tmp_path) as engine:
            assert await read_all(engine, CHUNK) == data

    asyncio.run(main())


@pytest.mark.parametrize("length", [1000, 100_000])
@pytest.mark.parametrize("ending", ["commit", "drop"])
def test_a_block_is_not_reused_before_it_is_durably_given_up(ending: str, length: int) -> None:
    async def main(fail_after: int, seed: int) -> None:
        machine = Machine(seed)
        await machine.open()
        for _ in range(2):
            await machine.stage(CHUNK, Kind.WRITE, 0, length)
            if ending == "commit":
                machine.commit(CHUNK)
            else:
                machine.drop(CHUNK)
        # The block that was given up just now is the lowest free one.
        await machine.together([machine.stage(ChunkId(8, 0), Kind.WRITE, 0, length)], fail_after)

    for fail_after in range(30):
        for seed in range(5):
            asyncio.run(main(fail_after, seed))


def test_an_append_does_not_overwrite_a_dropped_one_that_a_crash_may_bring_back() -> None:
    async def main(fail_after: int, seed: int) -> None:
        machine = Machine(seed)
        await machine.open()
        await machine.stage(CHUNK, Kind.WRITE, 0, 1000)
        machine.commit(CHUNK)
        await machine.stage(CHUNK, Kind.WRITE, 1000, 3000)
        machine.drop(CHUNK)
        await machine.together([machine.stage(CHUNK, Kind.WRITE, 1000, 3000)], fail_after)

    for fail_after in range(30):
        for seed in range(5):
            asyncio.run(main(fail_after, seed))
