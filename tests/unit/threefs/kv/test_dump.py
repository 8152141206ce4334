import asyncio
import io
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from threefs.errors import AlreadyExists, Corrupt, InvalidArgument
from threefs.kv import dump as module
from threefs.kv.dump import Content, check, dump, load, read
from threefs.kv.engine_api import Pair
from threefs.kv.memory import MemoryEngine
from threefs.kv.restore_mark import RESTORE_KEY, read_mark
from threefs.kv.rocks import RocksEngine

PAIRS = [(b"", b""), (b"\0", b"x"), (b"a", b"v" * 300), (b"k" * 10_000, b"w" * 100_000), (b"\xff" * 40, b"end")]


async def put(engine: RocksEngine | MemoryEngine, pairs: list[Pair]) -> None:
    tx = engine.begin()
    for key, value in pairs:
        tx.set(key, value)
    await tx.commit()


async def loaded(engine: MemoryEngine) -> list[Pair]:
    """What a load has put there, with a mark that all of it is."""
    tx = engine.begin()
    mark = await read_mark(tx)
    assert mark is not None and mark.complete
    return [pair for pair in await tx.get_range(b"", module.KEYS_END) if pair[0] != RESTORE_KEY]


async def dumped(directory: Path, pairs: list[Pair]) -> bytes:
    engine = await RocksEngine.open(directory)
    await put(engine, pairs)
    out = io.BytesIO()
    content = await dump(engine, out)
    assert content == Content(len(pairs), sum(len(key) + len(value) for key, value in pairs))
    await engine.close()
    return out.getvalue()


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    return asyncio.run(dumped(tmp_path / "store", PAIRS))


async def test_what_was_dumped_is_loaded(content: bytes) -> None:
    engine = MemoryEngine()
    assert await load(engine, io.BytesIO(content)) == check(io.BytesIO(content))
    assert await loaded(engine) == PAIRS
    with pytest.raises(AlreadyExists, match="not empty"):
        await load(engine, io.BytesIO(content))


async def test_many_records_come_in_pages_and_go_in_batches(tmp_path: Path) -> None:
    pairs = [(b"%05d" % number, b"v" * (number % 700)) for number in range(2600)]
    content = await dumped(tmp_path / "store", pairs)
    assert list(read(io.BytesIO(content))) == pairs
    engine = MemoryEngine()
    await load(engine, io.BytesIO(content))
    assert await loaded(engine) == pairs


def test_an_empty_store_makes_a_file_too(tmp_path: Path) -> None:
    content = asyncio.run(dumped(tmp_path / "store", []))
    assert check(io.BytesIO(content)) == Content(0, 0)


async def test_changes_during_a_dump_are_not_in_it(tmp_path: Path) -> None:
    class Changing(io.BytesIO):
        """Others write while the first page is written."""

        def write(self, piece: object, /) -> int:
            if not tasks:
                tasks.append(asyncio.ensure_future(put(engine, [(b"y%d" % n, b"") for n in range(100)])))
            return super().write(piece)  # type: ignore[arg-type]

    tasks: list[asyncio.Task[None]] = []
    engine: RocksEngine
    engine = await RocksEngine.open(tmp_path / "store")
    before = [(b"x%04d" % n, b"") for n in range(500)]
    await put(engine, before)
    out = Changing()
    await dump(engine, out)
    await asyncio.gather(*tasks)
    assert list(read(io.BytesIO(out.getvalue()))) == before
    await engine.close()


def test_a_file_that_is_cut_off_anywhere_is_noticed(content: bytes) -> None:
    places = [*range(200), *range(len(content) - 200, len(content)), len(content) // 2]
    for length in places:
        with pytest.raises(Corrupt):
            check(io.BytesIO(content[:length]))


@settings(max_examples=300)
@given(st.data())
def test_every_turned_bit_is_noticed(data: st.DataObject) -> None:
    content = SMALL
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(Corrupt):
        check(io.BytesIO(damaged))


def small() -> bytes:
    out = io.BytesIO()
    writer = module.Writer(out)
    for pair in PAIRS[:3]:
        writer.put(pair)
    writer.end()
    return out.getvalue()


SMALL = small()


def test_records_that_are_missing_doubled_or_added_are_noticed() -> None:
    pairs = list(read(io.BytesIO(SMALL)))
    assert pairs == PAIRS[:3]
    with pytest.raises(Corrupt, match="follows"):
        check(io.BytesIO(SMALL + b"\0"))
    first = len(module.MAGIC)
    record = module._HEADER.size + module._CHECKSUM.size  # the first has no key and no value
    with pytest.raises(Corrupt, match="record 0"):
        check(io.BytesIO(SMALL[:first] + SMALL[first + record :]))
    with pytest.raises(Corrupt, match="record 1"):
        check(io.BytesIO(SMALL[: first + record] + SMALL[first:]))
    with pytest.raises(Corrupt, match="not a dump"):
        check(io.BytesIO(b"x" * 100))


async def test_a_damaged_file_leaves_the_store_as_it_was(content: bytes) -> None:
    engine = MemoryEngine()
    with pytest.raises(Corrupt):
        await load(engine, io.BytesIO(content[:-1]))
    assert await engine.begin().get_range(b"", module.KEYS_END) == []


def test_a_pipe_is_refused() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    with os.fdopen(reading, "rb") as source, pytest.raises(InvalidArgument, match="must be a file"):
        asyncio.run(load(MemoryEngine(), source))
