import asyncio
import os
from pathlib import Path

import pytest
from threefs_storage.engine.content_plan import Kind
from threefs_storage.engine.records import Record

from tests.harness.chunk_engine import change, opened, put, read_all, read_range, update
from tests.harness.simulated_disk import engine_on, new_disk, simulate
from threefs.env.buffers import BufferPool
from threefs.errors import ChecksumMismatch, CorruptChunk
from threefs.ids import ChunkId

CHUNK = ChunkId(7, 0)
MIB = 1 << 20


@pytest.mark.parametrize("step", [1000, 4096, 70_000, 131_072])
def test_appends_stay_in_their_block_until_it_is_full(tmp_path: Path, step: int) -> None:
    async def main() -> None:
        data = os.urandom(MIB)
        async with opened(tmp_path) as engine:
            blocks = []
            for offset in range(0, 6 * step, step):
                version = await put(engine, CHUNK, data[offset : offset + step], offset)
                blocks.append(version.block)
                assert await read_all(engine, CHUNK) == data[: offset + step]
            assert len(set(blocks)) <= 3, "a block that is outgrown is followed by one with room"
        async with opened(tmp_path) as engine:
            assert await read_all(engine, CHUNK) == data[: 6 * step]

    asyncio.run(main())


def test_everything_but_an_append_goes_to_a_new_block(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as engine:
            before = await put(engine, CHUNK, b"a" * 5000)
            appended = await put(engine, CHUNK, b"b" * 10, 5000)
            assert appended.block == before.block
            for offset, payload in ((0, b"c"), (5009, b"dd"), (0, b"e" * 6000)):
                after = await put(engine, CHUNK, payload, offset)
                assert after.block != before.block
                before = after
            cut = await change(engine, CHUNK, Kind.TRUNCATE, length=4000)
            assert cut.block != before.block

    asyncio.run(main())


def test_an_append_leaves_the_committed_version_readable(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as engine:
            first = await put(engine, CHUNK, b"a" * 5000)
            wanted = update(engine, CHUNK, Kind.WRITE, b"b" * 5000, offset=5000)
            pending = await engine.stage(CHUNK, wanted, payload=b"b" * 5000)
            assert pending.block == first.block
            assert await read_range(engine, first, 0, 5000) == b"a" * 5000
            assert await read_range(engine, pending, 0, 10_000) == b"a" * 5000 + b"b" * 5000

    asyncio.run(main())


@pytest.mark.parametrize("kind", [Kind.TRUNCATE, Kind.EXTEND])
@pytest.mark.parametrize("length", [0, 1, 5000, 5001, 70_000, 200_000])
def test_lengths(tmp_path: Path, kind: Kind, length: int) -> None:
    async def main() -> None:
        async with opened(tmp_path) as engine:
            await put(engine, CHUNK, b"a" * 5000)
            await change(engine, CHUNK, kind, length=length)
            expected = (b"a" * 5000).ljust(length, b"\0")
            assert await read_all(engine, CHUNK) == (expected[:length] if kind == Kind.TRUNCATE else expected)
            await put(engine, CHUNK, b"z", 300_000)
            content = await read_all(engine, CHUNK)
            assert content is not None
            assert content.rstrip(b"z").rstrip(b"\0") == b"a" * min(5000, length if kind == Kind.TRUNCATE else 5000)

    asyncio.run(main())


@pytest.mark.parametrize("offset", [0, 100, 5000, 9000])
@pytest.mark.parametrize("length", [100, 5000, 100_000])
def test_a_payload_that_does_not_match_its_checksum_changes_nothing(tmp_path: Path, offset: int, length: int) -> None:
    async def main() -> None:
        async with opened(tmp_path) as engine:
            await put(engine, CHUNK, b"a" * 5000)
            wanted = update(engine, CHUNK, Kind.WRITE, b"b" * length, offset=offset)
            used = engine.space().used_bytes
            with pytest.raises(ChecksumMismatch):
                await engine.stage(CHUNK, wanted, payload=b"b" * (length - 1) + b"c")
            assert await read_all(engine, CHUNK) == b"a" * 5000
            assert engine.space().used_bytes == used
            await put(engine, CHUNK, b"b" * length, offset)

    asyncio.run(main())


@pytest.mark.parametrize("length", [MIB, MIB - 1, 65536, 70_000])
@pytest.mark.parametrize("shift", [0, 1, 512])
def test_payload_memory_of_any_alignment(tmp_path: Path, length: int, shift: int) -> None:
    async def main() -> None:
        payload = BufferPool().take(2 * MIB)[shift : shift + length]
        payload[:] = os.urandom(length)
        async with opened(tmp_path) as engine:
            wanted = update(engine, CHUNK, Kind.WRITE, bytes(payload))
            await engine.stage(CHUNK, wanted, payload=payload)
            engine.commit(CHUNK, 1, 1)
            assert await read_all(engine, CHUNK) == bytes(payload)

    asyncio.run(main())


def test_old_content_that_is_damaged_is_not_copied() -> None:
    async def main() -> None:
        disk = new_disk()
        engine = await engine_on(disk)
        await put(engine, CHUNK, b"a" * 10_000)
        (file,) = disk.files.values()
        file.flip(8000)
        for _ in range(5):
            with pytest.raises(CorruptChunk):
                await put(engine, CHUNK, b"b", 5)
        record = engine.record(CHUNK) or Record()
        assert record.pending is None
        await put(engine, CHUNK, b"b" * 10_000)
        assert await read_all(engine, CHUNK) == b"b" * 10_000

    simulate(main())
