import io
from collections.abc import Iterator

import pytest

from threefs.errors import StrangeStore
from threefs.kv import dump
from threefs.kv.engine_api import Pair
from threefs.kv.memory import MemoryEngine
from threefs.kv.restore_mark import RESTORE_KEY, read_mark, settle, write_mark


async def begun() -> MemoryEngine:
    engine = MemoryEngine()
    tx = engine.begin()
    write_mark(tx, complete=False)
    await tx.commit()
    return engine


async def test_a_store_that_was_loaded_in_part_is_refused_until_the_rest_is_there() -> None:
    engine = await begun()
    with pytest.raises(StrangeStore, match="only in part"):
        await read_mark(engine.begin())
    await dump.end_restore(engine, as_of_ns=77)
    mark = await read_mark(engine.begin())
    assert mark is not None and mark.as_of_ns == 77
    tx = engine.begin()
    settle(tx)
    await tx.commit()
    assert await read_mark(engine.begin()) is None


async def test_a_load_that_is_interrupted_leaves_no_store_that_would_be_served() -> None:
    class Interrupted(Exception):
        pass

    def pairs() -> Iterator[Pair]:
        yield from ((b"%04d" % number, b"v" * 900) for number in range(1200))
        raise Interrupted

    engine = MemoryEngine()
    await dump.begin_restore(engine)
    with pytest.raises(Interrupted):
        await dump.fill(engine, pairs())
    assert await engine.begin().get(b"0000") is not None
    with pytest.raises(StrangeStore):
        await read_mark(engine.begin())


async def test_a_mark_in_a_dump_is_not_loaded() -> None:
    engine = await begun()
    out = io.BytesIO()
    await dump.fill(engine, iter([(b"a", b"1")]))
    tx = engine.begin()
    pairs = await tx.get_range(b"", dump.KEYS_END)
    writer = dump.Writer(out)
    for pair in pairs:
        writer.put(pair)
    writer.end()
    other = MemoryEngine()
    await dump.load(other, io.BytesIO(out.getvalue()))
    mark = await read_mark(other.begin())
    assert mark is not None and mark.complete
    assert [key for key, _ in await other.begin().get_range(b"", dump.KEYS_END)] == [RESTORE_KEY, b"a"]
