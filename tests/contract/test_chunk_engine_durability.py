"""What a chunk engine has acknowledged survives power failures, kill -9 and full disks."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from threefs_storage.engine.chunk_record import Record
from threefs_storage.engine.content_plan import Kind
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.engine.engine_settings import EngineSettings
from threefs_storage.engine.overlay import OverlayLimits

from tests.harness import chunk_writer
from tests.harness.chunk_engine import NO_OVERLAYS, change, opened, put, read_all, read_range
from tests.harness.chunk_machine import CHUNK_BYTES, Machine, simulate
from tests.harness.small_disk import small_disk as mounted_disk
from threefs.errors import NoSpace, ThreefsError, Unavailable
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
    st.tuples(st.just("fold"), chunks),
    st.tuples(st.just("crashed fold"), st.tuples(chunks, st.integers(0, 10))),
    st.tuples(st.just("power"), st.just(None)),
    st.tuples(st.just("kill"), st.just(None)),
    st.tuples(
        st.just("crash"),
        st.tuples(st.lists(changes, min_size=1, max_size=4, unique_by=lambda change: change[0]), st.integers(0, 25)),
    ),
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32), plan=st.lists(steps, max_size=25))
def test_no_acknowledged_version_is_lost_whenever_the_power_fails(seed: int, plan: list[tuple[str, Any]]) -> None:
    async def body(machine: Machine) -> None:
        for name, argument in plan:
            await step(machine, name, argument)
            await machine.check()

    simulate(seed, body)


_STEPS = (
    *("stage", "write", "write", "write", "commit", "commit", "drop", "fold", "crashed fold", "power", "kill", "crash"),
)


@pytest.mark.parametrize("seed", range(40))
def test_long_lives(seed: int) -> None:
    source = random.Random(seed)

    def change() -> tuple[ChunkId, Kind, int, int]:
        def length() -> int:
            return source.choice([0, 1, 4096, 65536, 65537, source.randrange(CHUNK_BYTES // 2)])

        return ChunkId(7, source.randrange(4)), source.choice(list(Kind)), length(), length()

    async def body(machine: Machine) -> None:
        for _ in range(80):
            name = source.choice(_STEPS)
            todo = list({change[0]: change for change in (change() for _ in range(4))}.values())
            fold = (todo[0][0], source.randrange(10))
            arguments = {"stage": todo, "write": todo, "crash": (todo, source.randrange(25)), "crashed fold": fold}
            argument: Any = arguments.get(name, todo[0][0])
            await step(machine, name, argument)
            await machine.check()

    simulate(seed, body)


@pytest.mark.parametrize("seed", range(20))
def test_limits_change_while_chunks_do(seed: int) -> None:
    async def body(machine: Machine) -> None:
        source = machine.random
        for _ in range(60):
            number = source.randrange(4)
            chunk, other = ChunkId(7, number), ChunkId(7, (number + 1) % 4)
            length, offset = source.choice([100, 400, 3000, 60_000]), source.choice([0, 100, 5000, 70_000])
            kind = source.choice([Kind.WRITE, Kind.WRITE, Kind.WRITE, Kind.TRUNCATE, Kind.REMOVE])
            work = [machine.stage(chunk, kind, offset, length), machine.fold(other)]
            fail_after = source.randrange(25) if source.random() < 0.2 else None
            await machine.together([*work, machine.change_limits()], fail_after)
            if source.random() < 0.8:
                machine.commit(chunk)
            await machine.check()

    simulate(seed, body)


async def step(machine: Machine, name: str, argument: Any) -> None:
    if name == "commit":
        machine.commit(argument)
    elif name == "drop":
        machine.drop(argument)
    elif name == "fold":
        await machine.together([machine.fold(argument)], None)
    elif name == "crashed fold":
        await machine.together([machine.fold(argument[0])], argument[1])
    elif name == "power":
        await machine.fail_power()
    elif name == "kill":
        await machine.kill()
    else:
        todo, fail_after = argument if name == "crash" else (argument, None)
        await machine.together([machine.stage(*change) for change in todo], fail_after)
        if name == "write":
            for chunk, *_ in todo:
                machine.commit(chunk)


@pytest.mark.parametrize("length", [1000, 100_000])
@pytest.mark.parametrize("ending", ["commit", "drop"])
def test_a_block_is_not_reused_before_it_is_durably_given_up(ending: str, length: int) -> None:
    async def body(machine: Machine) -> None:
        for _ in range(2):
            await machine.stage(CHUNK, Kind.WRITE, 0, length)
            if ending == "commit":
                machine.commit(CHUNK)
            else:
                machine.drop(CHUNK)
        # The block that was given up just now is the lowest free one.
        await machine.together([machine.stage(ChunkId(8, 0), Kind.WRITE, 0, length)], machine.random.randrange(30))

    for seed in range(150):
        simulate(seed, body, NO_OVERLAYS)


def test_an_append_does_not_overwrite_a_dropped_one_that_a_crash_may_bring_back() -> None:
    async def body(machine: Machine) -> None:
        await machine.stage(CHUNK, Kind.WRITE, 0, 1000)
        machine.commit(CHUNK)
        await machine.stage(CHUNK, Kind.WRITE, 1000, 3000)
        machine.drop(CHUNK)
        await machine.together([machine.stage(CHUNK, Kind.WRITE, 1000, 3000)], machine.random.randrange(30))

    for seed in range(150):
        simulate(seed, body, NO_OVERLAYS)


def test_an_append_does_not_overwrite_bytes_that_were_cut_off() -> None:
    """They are in the block still, and a crash may bring back the version that has them."""

    async def body(machine: Machine) -> None:
        await machine.stage(CHUNK, Kind.WRITE, 0, 3000)
        machine.commit(CHUNK)
        await machine.stage(CHUNK, Kind.TRUNCATE, 0, 1000)
        machine.commit(CHUNK)
        await machine.together([machine.stage(CHUNK, Kind.WRITE, 1000, 2000)], machine.random.randrange(30))

    for seed in range(150):
        simulate(seed, body, OverlayLimits(deferred_bytes=1000, inline_bytes=0))


def test_an_append_does_not_overwrite_a_version_that_was_dropped() -> None:
    """P12: the drop is not durable, so a crash may bring that version back."""

    async def body(machine: Machine) -> None:
        await machine.stage(CHUNK, Kind.WRITE, 0, 3000)
        machine.commit(CHUNK)
        await machine.stage(CHUNK, Kind.WRITE, 3000, 2000)
        machine.drop(CHUNK)
        await machine.together([machine.stage(CHUNK, Kind.WRITE, 3000, 2500)], machine.random.randrange(30))

    for seed in range(150):
        simulate(seed, body, NO_OVERLAYS)


def test_a_fold_frees_the_old_block_only_when_it_is_durable() -> None:
    async def body(machine: Machine) -> None:
        await machine.stage(CHUNK, Kind.WRITE, 0, 100_000)
        machine.commit(CHUNK)
        await machine.stage(CHUNK, Kind.WRITE, 5, 100)
        machine.commit(CHUNK)
        other = machine.stage(ChunkId(8, 0), Kind.WRITE, 0, 100_000)
        await machine.together([machine.fold(CHUNK), other], machine.random.randrange(30))

    for seed in range(150):
        simulate(seed, body, OverlayLimits())


def test_a_fold_in_place_waits_until_the_commit_is_durable() -> None:
    """Else a crash may bring back the version before, which shows what the fold has written over."""

    async def body(machine: Machine) -> None:
        await machine.stage(CHUNK, Kind.WRITE, 0, 100_000)
        machine.commit(CHUNK)
        await machine.stage(CHUNK, Kind.WRITE, 5000, 2000)
        machine.commit(CHUNK)
        await machine.together([machine.fold(CHUNK)], machine.random.randrange(30))

    for seed in range(150):
        simulate(seed, body, OverlayLimits())


def in_engine(
    directory: Path, body: Callable[[ChunkEngine], Awaitable[None]], settings: EngineSettings | None = None
) -> None:
    async def main() -> None:
        async with opened(directory, settings) as engine:
            await body(engine)

    asyncio.run(main())


def durable_until_killed(directory: Path, changes: int) -> dict[int, int]:
    """The newest version of each task that a writer has named before it was killed."""
    process = subprocess.Popen(
        [sys.executable, chunk_writer.__file__, str(directory)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    durable: dict[int, int] = {}
    with process.stdout:
        for seen, line in enumerate(process.stdout):
            task, version = map(int, line.split())
            durable[task] = version
            if seen == changes:
                process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    return durable


def test_nothing_durable_is_lost_by_kill_9(tmp_path: Path) -> None:
    async def check(durable: dict[int, int]) -> None:
        async with opened(tmp_path) as engine:
            assert not engine.damaged
            for task, version in durable.items():
                record = engine.record(chunk_writer.chunk_of(task)) or Record()
                found = [v for v in (record.committed, record.pending) if v is not None]
                assert max(v.version for v in found) >= version
                for v in found:
                    assert await read_range(engine, v, 0, v.length) == chunk_writer.content(task, v.version)

    for changes in (3, 60, 200):
        durable = durable_until_killed(tmp_path, changes)
        assert durable
        asyncio.run(check(durable))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted_disk(tmp_path / "disk", "64m") as disk:
        yield disk


def test_a_full_disk_takes_no_client_writes_but_everything_else(small_disk: Path) -> None:
    data = os.urandom(1 << 20)

    async def fill(engine: ChunkEngine) -> None:
        number = 0
        with pytest.raises(NoSpace):
            while True:
                await put(engine, ChunkId(1, number), data)
                number += 1
        assert number > 40
        assert engine.failure is None
        with pytest.raises(NoSpace):
            await put(engine, ChunkId(1, 0), b"x", 5)
        assert engine.space().chunks == number
        for kept in range(1, number):
            assert await read_all(engine, ChunkId(1, kept)) == data
        await change(engine, ChunkId(1, 0), Kind.REMOVE)
        await put(engine, ChunkId(2, 0), data[:60_000])  # a block of another size

    async def check(engine: ChunkEngine) -> None:
        assert await read_all(engine, ChunkId(2, 0)) == data[:60_000]
        assert await read_all(engine, ChunkId(1, 1)) == data
        assert await read_all(engine, ChunkId(1, 0)) is None

    in_engine(small_disk, fill, EngineSettings(overlay=NO_OVERLAYS))
    in_engine(small_disk, check)


def test_a_disk_filled_by_others_loses_nothing(small_disk: Path) -> None:
    data = os.urandom(50_000)
    durable: list[int] = []

    async def fill(engine: ChunkEngine) -> None:
        await put(engine, ChunkId(1, 0), data)
        durable.append(0)
        with contextlib.suppress(OSError), (small_disk / "other").open("wb", buffering=0) as other:
            while True:
                other.write(bytes(1 << 16))
        for number in range(1, 5000):
            try:
                await put(engine, ChunkId(1, number), data)
            except (NoSpace, Unavailable):
                break
            durable.append(number)
        else:
            raise AssertionError("the disk never became full")
        for number in durable:
            assert await read_all(engine, ChunkId(1, number)) == data

    async def check(engine: ChunkEngine) -> None:
        for number in durable:
            record = engine.record(ChunkId(1, number)) or Record()
            version = record.committed or record.pending
            assert version is not None
            assert await read_range(engine, version, 0, version.length) == data
        await put(engine, ChunkId(3, 0), data)

    with contextlib.suppress(ThreefsError):  # what was not acknowledged cannot be made durable
        in_engine(small_disk, fill)
    assert durable
    (small_disk / "other").unlink()
    in_engine(small_disk, check)
