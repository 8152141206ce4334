"""The faults of the simulated store. That it is serializable is in tests/contract."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.loop import Process, SimLoop
from tests.sim.kv import PATIENCE_S, SimKv
from threefs.errors import Conflict, MaybeCommitted, Unavailable
from threefs.kv import retry
from threefs.kv.engine_api import Transaction
from threefs.kv.transaction import BufferedTransaction

Body = Callable[[SimKv, SimLoop], Coroutine[Any, Any, None]]


def with_store(body: Body, seed: int = 1) -> None:
    loop = SimLoop()
    loop.run(body(SimKv(loop, SeededRandom(seed)), loop))
    assert not loop.failures
    loop.discard()


async def put(kv: SimKv, value: bytes) -> None:
    tx = kv.begin()
    tx.set(b"key", value)
    await tx.commit()


async def get(kv: SimKv) -> bytes | None:
    return await kv.begin().get(b"key")


def test_it_outlives_processes() -> None:
    async def body(kv: SimKv, loop: SimLoop) -> None:
        one, other = Process(loop, "1", "a"), Process(loop, "2", "a")
        await one.start(put(kv, b"x"))
        one.kill()
        assert await other.start(get(kv)) == b"x"

    with_store(body)


def test_calls_take_time() -> None:
    async def body(kv: SimKv, loop: SimLoop) -> None:
        kv.delay_s = (0.5, 0.8)
        begin = loop.time()
        await put(kv, b"x")
        assert 1.0 <= loop.time() - begin <= 1.6 < PATIENCE_S
        begin = loop.time()
        await get(kv)
        assert 0.5 <= loop.time() - begin <= 0.8

    with_store(body)


@pytest.mark.parametrize("what", ["host", "store"])
def test_an_unreachable_store_is_reported_and_nothing_has_changed(what: str) -> None:
    async def body(kv: SimKv, loop: SimLoop) -> None:
        here, there = Process(loop, "1", "here"), Process(loop, "2", "there")
        await put(kv, b"old")
        if what == "store":
            kv.down = True
        else:
            kv.blocked.add("here")
        for call in (put(kv, b"new"), get(kv), confirm(kv)):
            begin = loop.time()
            with pytest.raises(Unavailable):
                await here.start(call)
            assert loop.time() - begin >= PATIENCE_S
        if what == "host":
            assert await there.start(get(kv)) == b"old", "others are served"
        kv.down = False
        kv.blocked.clear()
        assert await here.start(get(kv)) == b"old"

    with_store(body)


async def confirm(kv: SimKv) -> None:
    await kv.begin().confirm()


@pytest.mark.parametrize(("blocked_at", "ends"), [(0.05, {None, b"new"}), (0.15, {b"new"})])
def test_a_commit_under_way_when_the_way_is_blocked_is_made_or_not(blocked_at: float, ends: set[bytes | None]) -> None:
    found: set[bytes | None] = set()

    async def body(kv: SimKv, loop: SimLoop) -> None:
        process = Process(loop, "1", "here")
        kv.delay_s = (0.1, 0.1)
        loop.call_later(blocked_at, kv.blocked.add, "here")
        with pytest.raises(MaybeCommitted):
            await process.start(put(kv, b"new"))
        found.add(await get(kv))

    for seed in range(20):
        with_store(body, seed)
    assert found == ends, "what has arrived is made"


def test_a_commit_whose_process_is_killed_is_made_or_not() -> None:
    found = set()

    async def body(kv: SimKv, loop: SimLoop) -> None:
        process = Process(loop, "1", "here")
        kv.delay_s = (0.1, 0.1)
        process.start(put(kv, b"new"))
        await asyncio.sleep(0.05)
        process.kill()
        await asyncio.sleep(1)
        found.add(await get(kv))

    for seed in range(20):
        with_store(body, seed)
    assert found == {None, b"new"}


def test_unknown_ends_are_injected_and_half_of_them_were_made() -> None:
    async def body(kv: SimKv, loop: SimLoop) -> None:
        kv.unknown = 0.5
        known = made = unknown = 0
        for number in range(200):
            value = b"%d" % number
            try:
                await put(kv, value)
            except MaybeCommitted:
                unknown += 1
                made += await get(kv) == value
            else:
                known += 1
                assert await get(kv) == value
        assert known > 50 and unknown > 50
        assert 0.3 < made / unknown < 0.7

    with_store(body)


def test_conflicts_are_injected_and_change_nothing() -> None:
    async def body(kv: SimKv, loop: SimLoop) -> None:
        kv.conflicts = 0.5
        refused = 0
        for number in range(100):
            before, value = await get(kv), b"%d" % number
            try:
                await put(kv, value)
            except Conflict:
                refused += 1
                value = before or b""
            assert (await get(kv) or b"") == value
        assert 20 < refused < 80

    with_store(body)


def test_every_increment_counts_once_whatever_is_injected() -> None:
    async def body(kv: SimKv, loop: SimLoop) -> None:
        kv.conflicts, kv.unknown = 0.2, 0.2
        dice = SeededRandom("pauses")

        async def increment(name: bytes) -> None:
            async def once(tx: Transaction) -> None:
                if await tx.get(b"done" + name) is None:
                    tx.set(b"done" + name, b"")
                    tx.set(b"n", b"%d" % (int(await tx.get(b"n") or 0) + 1))

            await retry.run(kv, once, clock=kv._clock, random=dice, timeout_s=600.0, replayable=True)

        await asyncio.gather(*(increment(b"%d" % number) for number in range(20)))
        assert await kv.begin().get(b"n") == b"20"

    for seed in range(5):
        with_store(body, seed)


def test_another_store_in_its_place_has_nothing_of_it_and_takes_nothing_that_was_meant_for_it() -> None:
    async def body(kv: SimKv, loop: SimLoop) -> None:
        await put(kv, b"before")
        right = kv.pairs()
        assert right == {b"key": b"before"}
        late = loop.create_task(put(kv, b"late"))
        await asyncio.sleep(0)
        kv.mount({})
        with pytest.raises(MaybeCommitted):
            await late
        assert kv.pairs() == {} and await get(kv) is None
        await put(kv, b"strange")
        kv.mount(right)
        assert await get(kv) == b"before"
        await put(kv, b"after")
        assert await get(kv) == b"after"

    with_store(body)


def test_a_commit_may_reach_the_store_long_after_its_caller_has_given_up() -> None:
    async def body(kv: SimKv, loop: SimLoop) -> None:
        kv.unknown = kv.late = 1.0
        late = 0
        for number in range(20):
            value = b"%d" % number
            with pytest.raises(MaybeCommitted):
                await put(kv, value)
            before = await get(kv)
            await asyncio.sleep(2 * PATIENCE_S)
            late += before != value and await get(kv) == value
        assert late > 5

    with_store(body)


def test_a_commit_that_comes_late_is_refused_if_what_it_has_read_was_changed() -> None:
    async def body(kv: SimKv, loop: SimLoop) -> None:
        kv.unknown = kv.late = 1.0
        tx = kv.begin()
        await tx.get(b"key")
        tx.set(b"key", b"late")
        commit = asyncio.ensure_future(tx.commit())
        await asyncio.sleep(0.05)
        kv.unknown = 0.0
        await put(kv, b"new")
        with pytest.raises(MaybeCommitted):
            await commit
        await asyncio.sleep(3 * PATIENCE_S)
        assert await get(kv) == b"new"

    with_store(body)


def test_a_process_may_be_suspended_when_it_has_begun_a_commit() -> None:
    async def body(kv: SimKv, loop: SimLoop) -> None:
        process = Process(loop, "1", "a")

        def suspend(attempt: BufferedTransaction) -> bool:
            if attempt.writes[b"key"] != b"y":
                return False
            process.pause()
            return True

        kv.on_commit["a"] = suspend
        await process.start(put(kv, b"x"))
        task = process.start(put(kv, b"y"))
        await asyncio.sleep(3 * PATIENCE_S)
        assert not task.done() and not kv.on_commit and await get(kv) == b"y"
        process.resume()
        await asyncio.wait([task])

    with_store(body)
