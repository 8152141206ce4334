"""A counter begins at 0 and never falls."""

import pytest
from threefs_meta.store.counters import increase, raise_to, read_counter

from threefs.kv.memory import MemoryEngine


async def test_it_only_rises() -> None:
    engine = MemoryEngine()
    tx = engine.begin()
    assert await read_counter(tx, b"k") == 0
    assert [await increase(tx, b"k", by) for by in (7, 0, 1)] == [7, 7, 8]
    assert [await raise_to(tx, b"k", least) for least in (5, 8, 9)] == [8, 8, 9]
    with pytest.raises(AssertionError):
        await increase(tx, b"k", -1)
    await tx.commit()
    assert await read_counter(engine.begin(), b"k") == 9


async def test_to_raise_a_counter_that_is_high_enough_writes_nothing() -> None:
    engine = MemoryEngine()
    tx = engine.begin()
    await increase(tx, b"k", 3)
    await tx.commit()
    before = engine._history.version
    tx = engine.begin()
    assert await raise_to(tx, b"k", 2) == 3
    await tx.commit()
    assert engine._history.version == before
