"""Ticks never last shorter than they should, whoever counts them, and wait while nobody does."""

import asyncio
from typing import Any

import pytest
from threefs_meta.lease import logical_clock
from threefs_meta.lease.logical_clock import LogicalClock
from threefs_meta.store import keys
from threefs_meta.store.counters import increase, read_counter

from tests.harness.clocks import SteppedClock
from tests.harness.seeded_random import SeededRandom
from threefs.errors import MaybeCommitted, Unavailable
from threefs.kv.engine_api import Transaction
from threefs.kv.memory import MemoryEngine
from threefs.kv.transaction import BufferedTransaction
from threefs.leases import TICKS_PER_LEASE


class World:
    """Some services with one store; a clock for each."""

    def __init__(self, **trouble: float) -> None:
        self.engine = MemoryEngine(random=SeededRandom(1), **trouble)  # type: ignore[arg-type]
        self.clocks: list[SteppedClock] = []

    def service(self, lease_s: float = 20.0) -> LogicalClock:
        clock = SteppedClock()
        clock.advance(1e4 * len(self.clocks))  # they have nothing in common
        self.clocks.append(clock)
        return LogicalClock(self.engine, lambda: lease_s, clock=clock, random=SeededRandom(2))

    def advance(self, seconds: float) -> None:
        for clock in self.clocks:
            clock.advance(seconds)


@pytest.fixture
def world(request: pytest.FixtureRequest) -> World:
    """`@pytest.mark.trouble(conflict_rate=0.1)` makes the store fail."""
    marker = request.node.get_closest_marker("trouble")
    return World(**(marker.kwargs if marker is not None else {}))


async def test_a_tick_lasts_its_time(world: World) -> None:
    ticks = world.service()
    assert ticks.tick_s == 60.0 / TICKS_PER_LEASE
    assert not await ticks.poll()
    world.advance(ticks.tick_s - 0.1)
    assert not await ticks.poll() and ticks.tick == 0
    world.advance(0.1)
    assert await ticks.poll() and ticks.tick == 1
    assert not await ticks.poll(), "the next one has just begun"


async def test_many_services_count_no_faster_than_one_and_only_one_ends_a_tick(world: World) -> None:
    services = [world.service() for _ in range(3)]
    ended = 0
    for _ in range(100):
        ended += sum(await asyncio.gather(*(ticks.poll() for ticks in services)))
        world.advance(1.0)
    assert {ticks.tick for ticks in services} <= {8, 9, 10} and 8 <= ended <= 10


async def test_a_service_that_stood_still_ends_one_tick_only(world: World) -> None:
    ticks = world.service()
    await ticks.poll()
    world.advance(1000.0)
    assert await ticks.poll() and not await ticks.poll() and ticks.tick == 1


async def test_a_new_service_watches_for_itself_before_it_counts(world: World) -> None:
    first = world.service()
    await first.poll()
    world.advance(first.tick_s)
    await first.poll()
    world.advance(first.tick_s * 0.9)
    second = world.service()
    assert not await second.poll() and second.tick == 1
    world.advance(second.tick_s * 0.5)
    assert not await second.poll(), "it has seen the tick for half of its time"
    assert await first.poll()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.trouble(conflict_rate=0.1, unknown_rate=0.1)
async def test_a_stamp_is_never_behind(world: World, seed: int) -> None:
    """Whatever others count, and however long ago this service has looked."""
    random = SeededRandom(seed)
    idle, busy = world.service(), world.service()
    await idle.poll()
    for _ in range(300):
        world.advance(random.uniform(0, 4))
        await busy.poll()
        if random.below(20) == 0:
            await idle.poll()
        assert idle.stamp() >= busy.tick and busy.stamp() >= busy.tick
    assert busy.tick > 20


async def test_a_stamp_does_not_count_the_time_in_which_the_store_was_away(world: World) -> None:
    """Leases and removals that were stamped before the next look ended that much later."""
    ticks, other = world.service(), world.service()
    await ticks.poll()
    world.advance(ticks.tick_s)
    assert await ticks.poll()
    world.advance(100 * ticks.tick_s)
    await ticks.catch_up()
    assert (ticks.tick, ticks.stamp()) == (1, 2)
    await other.poll()
    world.advance(other.tick_s)
    assert await other.poll()
    await ticks.catch_up()
    assert (ticks.tick, ticks.stamp()) == (2, 3)


async def test_a_look_that_is_answered_late_takes_no_tick_back(world: World) -> None:
    ticks, other = world.service(), world.service()
    await asyncio.gather(ticks.poll(), other.poll())
    world.advance(ticks.tick_s)
    read, release = ticks._run, asyncio.Event()

    async def late(function: Any) -> Any:
        found = await read(function)
        await release.wait()
        return found

    ticks._run = late  # type: ignore[method-assign]
    looking = asyncio.ensure_future(ticks.catch_up())
    await asyncio.sleep(0.01)
    ticks._run = read  # type: ignore[method-assign]
    world.advance(1.0)
    assert await other.poll()
    await ticks.catch_up()
    release.set()
    await looking
    assert ticks.tick == 1


@pytest.mark.parametrize("outcome", ["committed", "unknown", "conflict"])
async def test_a_request_that_looks_while_the_tick_is_raised_shortens_no_tick(
    world: World, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    """The store stalled, so the request looked; then the tick was raised once more, or was believed to have been."""
    ticks, other = world.service(lease_s=10.0), world.service(lease_s=10.0)
    await asyncio.gather(ticks.poll(), other.poll())
    world.advance(ticks.tick_s)
    raising: list[Transaction] = []
    commit = BufferedTransaction.commit

    async def noted(tx: Transaction, key: bytes, by: int) -> None:
        raising.append(tx)
        await increase(tx, key, by)

    async def stalled(tx: BufferedTransaction) -> None:
        if raising != [tx]:
            await commit(tx)
            return
        if outcome == "conflict":
            assert await other.poll()
        else:
            await commit(tx)
        world.clocks[0].advance(ticks.tick_s)
        await ticks.catch_up()
        if outcome == "conflict":
            await commit(tx)
        elif outcome == "unknown":
            raise MaybeCommitted("the answer was lost")

    monkeypatch.setattr(logical_clock, "increase", noted)
    monkeypatch.setattr(BufferedTransaction, "commit", stalled)
    await ticks.poll()
    assert ticks.tick == await read_counter(world.engine.begin(), keys.TICK) == 1


async def test_it_counts_by_itself_also_after_the_store_was_away(world: World) -> None:
    ticks = world.service()
    begin, away = world.engine.begin, True
    calls = 0

    def unwilling() -> BufferedTransaction:
        if away:
            raise Unavailable("the store is away")
        return begin()

    world.engine.begin = unwilling  # type: ignore[method-assign]

    def count() -> None:
        nonlocal calls
        calls += 1

    counting = asyncio.create_task(ticks.run(count))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not calls
    away = False
    while calls < 3:
        await asyncio.sleep(0)
    counting.cancel()
    assert ticks.tick == 3
