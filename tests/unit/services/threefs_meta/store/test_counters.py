"""A counter begins at 0."""

from threefs_meta.store.counters import read_counter, write_counter

from threefs.kv.memory import MemoryEngine


async def test_it_is_zero_until_it_is_written() -> None:
    engine = MemoryEngine()
    tx = engine.begin()
    assert await read_counter(tx, b"k") == 0
    write_counter(tx, b"k", 7)
    await tx.commit()
    assert await read_counter(engine.begin(), b"k") == 7
