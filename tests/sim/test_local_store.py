"""Embedded stores in the simulator: what a power cut takes back, and that nobody was told of it."""

import asyncio

import pytest

from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.clock import SimClock
from tests.harness.simulated.disk import SimDisk
from tests.harness.simulated.loop import Process, SimLoop
from tests.sim.faults import parse
from tests.sim.local_store import open_engine
from tests.sim.run import Outcome, run
from tests.sim.workload import Load
from tests.sim.world import Size
from threefs.errors import Conflict
from threefs.kv.rocks import RocksEngine


def found_after_a_cut(seed: int) -> set[bytes]:
    """Of three commits under way, two that follow each other and one that has been answered before."""
    loop = SimLoop()
    disk = SimDisk(loop, SeededRandom(seed))
    keys: set[bytes] = set()

    async def write(engine: RocksEngine, key: bytes) -> None:
        tx = engine.begin()
        tx.set(key, b"x")
        await tx.commit()

    async def first() -> None:
        engine = await open_engine(disk, SimClock(loop))
        await write(engine, b"answered")
        for key in (b"one", b"two"):
            loop.create_task(write(engine, key))
        await asyncio.sleep(0)
        seen = engine.begin()
        assert await seen.get(b"one") == b"x", "it is seen before it is durable"

    async def again() -> None:
        engine = await open_engine(disk, SimClock(loop))
        keys.update(key for key, _ in await engine.begin().get_range(b"", b"\xff"))

    async def body() -> None:
        process = Process(loop, "p", "t1")
        await process.start(first())
        process.kill()
        disk.cut_power()
        await again()

    loop.run(body())
    loop.discard()
    return keys


def test_a_power_cut_takes_back_the_newest_unacknowledged_writes() -> None:
    found = {frozenset(found_after_a_cut(seed)) for seed in range(40)}
    assert found == {frozenset({b"answered", *more}) for more in ((), (b"one",), (b"one", b"two"))}


def test_a_transaction_sees_one_state_and_conflicts_are_judged() -> None:
    loop = SimLoop()

    async def body() -> None:
        engine = await open_engine(SimDisk(loop, SeededRandom(1)), SimClock(loop))
        one, other = engine.begin(), engine.begin()
        assert await other.get(b"key") is None
        one.set(b"key", b"1")
        await one.commit()
        assert await other.get_many([b"key"]) == [None] and not await other.get_range(b"", b"z")
        other.set(b"key", b"2")
        with pytest.raises(Conflict):
            await other.commit()
        await engine.close()

    loop.run(body())
    loop.discard()


def played(seed: int) -> Outcome:
    load = Load(chunks=1, pause_s=1.0, files_pause_s=0.02)
    size = Size(storage=3, targets_per_disk=1, clients=2, managers=1, lockers=2, local_stores=True)
    cuts = "\n".join(f"{at / 2} power {'t1' if at % 2 else 'm1'} 0.1" for at in range(2, 16))
    return run(seed, size=size, load=load, scenario=parse(cuts))


def test_what_services_with_local_stores_have_said_outlives_power_cuts() -> None:
    outcome = played(1)
    assert not outcome.violations and outcome.faults == {"power": 14}


def test_commits_that_are_acknowledged_before_they_are_durable_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hasty(self: object, number: int | None = None) -> None:
        """Nothing is flushed."""

    monkeypatch.setattr("tests.sim.local_store.LocalTable.flush", hasty)
    assert any(played(seed).violations for seed in range(1, 6))
