"""Leases of clients, within transactions."""

import asyncio

import pytest
from threefs_meta.lease import leases
from threefs_meta.store import keys

from threefs.errors import Conflict, InvalidArgument
from threefs.kv.memory import MemoryEngine
from threefs.leases import LEASE_TICKS

ONE, TWO = b"1" * 16, b"2" * 16


async def test_it_begins_once_and_a_new_one_has_a_higher_number() -> None:
    engine = MemoryEngine()
    tx = engine.begin()
    assert await leases.current(tx, ONE) == 0
    first = await leases.ensure(tx, ONE, 5)
    assert first and await leases.ensure(tx, ONE, 9) == first
    second = await leases.ensure(tx, TWO, 5)
    await leases.end(tx, TWO, first)
    assert await leases.current(tx, TWO) == second, "another lease"
    await leases.end(tx, TWO, second)
    assert await leases.ensure(tx, TWO, 5) > second > first
    await tx.commit()
    assert len(await engine.begin().get_range(*keys.ENDED)) == 1


async def test_what_is_held_conflicts_with_the_end_but_not_with_a_renewal() -> None:
    engine = MemoryEngine()
    tx = engine.begin()
    await leases.ensure(tx, ONE, 5)
    await tx.commit()
    holding, late, renewing, ending = (engine.begin() for _ in range(4))
    for tx in (holding, late):
        await leases.ensure(tx, ONE, 5)
        tx.set(b"held", b"")
    leases.renew(renewing, ONE, 6)
    await renewing.commit()
    await holding.commit()
    await leases.end(ending, ONE, await leases.current(ending, ONE))
    await ending.commit()
    with pytest.raises(Conflict):
        await late.commit()


async def test_the_end_of_what_never_was_is_no_news() -> None:
    engine = MemoryEngine()
    tx = engine.begin()
    await leases.end(tx, ONE, 3)
    await tx.commit()
    assert await engine.begin().get_range(b"", b"\xff") == []


def test_silence_is_counted_from_the_stamp() -> None:
    assert not leases.is_silent(5, 5 + LEASE_TICKS - 1) and leases.is_silent(5, 5 + LEASE_TICKS)


def test_a_client_has_an_identity() -> None:
    with pytest.raises(InvalidArgument):
        asyncio.run(leases.ensure(MemoryEngine().begin(), b"short", 1))
