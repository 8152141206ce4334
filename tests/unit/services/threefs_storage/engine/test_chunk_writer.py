import os
from pathlib import Path

import pytest
from threefs_storage.engine.chunk_record import Record
from threefs_storage.engine.content_plan import Kind
from threefs_storage.engine.engine_settings import EngineSettings
from threefs_storage.engine.overlay import BlobKey, OverlayLimits

from tests.harness.chunk_engine import NO_OVERLAYS, change, opened, put, read_all, read_range, update
from tests.harness.simulated_disk import engine_on, new_disk, simulate
from threefs.checksums import crc32c
from threefs.env.buffers import BufferPool
from threefs.errors import ChecksumMismatch, CorruptChunk, NoSpace
from threefs.ids import ChunkId

CHUNK = ChunkId(7, 0)
BLOCKS_ONLY = EngineSettings(overlay=NO_OVERLAYS)
MIB = 1 << 20


@pytest.mark.parametrize("step", [1000, 4096, 70_000, 131_072])
async def test_appends_stay_in_their_block_until_it_is_full(tmp_path: Path, step: int) -> None:
    data = os.urandom(MIB)
    async with opened(tmp_path, BLOCKS_ONLY) as engine:
        blocks = []
        for offset in range(0, 6 * step, step):
            version = await put(engine, CHUNK, data[offset : offset + step], offset)
            blocks.append(version.block)
            assert await read_all(engine, CHUNK) == data[: offset + step]
        assert len(set(blocks)) <= 3, "a block that is outgrown is followed by one with room"
    async with opened(tmp_path) as engine:
        assert await read_all(engine, CHUNK) == data[: 6 * step]


async def test_everything_but_an_append_goes_to_a_new_block(tmp_path: Path) -> None:
    async with opened(tmp_path, BLOCKS_ONLY) as engine:
        before = await put(engine, CHUNK, b"a" * 5000)
        appended = await put(engine, CHUNK, b"b" * 10, 5000)
        assert appended.block == before.block
        for offset, payload in ((0, b"c"), (5009, b"dd"), (0, b"e" * 6000)):
            after = await put(engine, CHUNK, payload, offset)
            assert after.block != before.block
            before = after
        cut = await change(engine, CHUNK, Kind.TRUNCATE, length=4000)
        assert cut.block != before.block


async def test_an_append_leaves_the_committed_version_readable(tmp_path: Path) -> None:
    async with opened(tmp_path, BLOCKS_ONLY) as engine:
        first = await put(engine, CHUNK, b"a" * 5000)
        wanted = update(engine, CHUNK, Kind.WRITE, b"b" * 5000, offset=5000)
        pending = await engine.stage(CHUNK, wanted, payload=b"b" * 5000)
        assert pending.block == first.block
        assert await read_range(engine, first, 0, 5000) == b"a" * 5000
        assert await read_range(engine, pending, 0, 10_000) == b"a" * 5000 + b"b" * 5000


@pytest.mark.parametrize("kind", [Kind.TRUNCATE, Kind.EXTEND])
@pytest.mark.parametrize("length", [0, 1, 5000, 5001, 70_000, 200_000])
async def test_lengths(tmp_path: Path, kind: Kind, length: int) -> None:
    async with opened(tmp_path) as engine:
        await put(engine, CHUNK, b"a" * 5000)
        await change(engine, CHUNK, kind, length=length)
        expected = (b"a" * 5000).ljust(length, b"\0")
        assert await read_all(engine, CHUNK) == (expected[:length] if kind == Kind.TRUNCATE else expected)
        await put(engine, CHUNK, b"z", 300_000)
        content = await read_all(engine, CHUNK)
        assert content is not None
        assert content.rstrip(b"z").rstrip(b"\0") == b"a" * min(5000, length if kind == Kind.TRUNCATE else 5000)


@pytest.mark.slow
@pytest.mark.parametrize("offset", [0, 100, 5000, 9000])
@pytest.mark.parametrize("length", [100, 5000, 100_000])
async def test_a_payload_that_does_not_match_its_checksum_changes_nothing(
    tmp_path: Path, offset: int, length: int
) -> None:
    async with opened(tmp_path) as engine:
        await put(engine, CHUNK, b"a" * 5000)
        wanted = update(engine, CHUNK, Kind.WRITE, b"b" * length, offset=offset)
        used = engine.space().used_bytes
        with pytest.raises(ChecksumMismatch):
            await engine.stage(CHUNK, wanted, payload=b"b" * (length - 1) + b"c")
        assert await read_all(engine, CHUNK) == b"a" * 5000
        assert engine.space().used_bytes == used
        await put(engine, CHUNK, b"b" * length, offset)


@pytest.mark.parametrize("length", [MIB, MIB - 1, 65536, 70_000])
@pytest.mark.parametrize("shift", [0, 1, 512])
async def test_payload_memory_of_any_alignment(tmp_path: Path, length: int, shift: int) -> None:
    payload = BufferPool().take(2 * MIB)[shift : shift + length]
    payload[:] = os.urandom(length)
    async with opened(tmp_path) as engine:
        wanted = update(engine, CHUNK, Kind.WRITE, bytes(payload))
        await engine.stage(CHUNK, wanted, payload=payload)
        engine.commit(CHUNK, 1, 1)
        assert await read_all(engine, CHUNK) == bytes(payload)


def test_old_content_that_is_damaged_is_not_copied() -> None:
    async def main() -> None:
        disk = new_disk()
        engine = await engine_on(disk, settings=BLOCKS_ONLY)
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


SMALL = EngineSettings(overlay=OverlayLimits(deferred_bytes=5000, inline_bytes=1000, extents=4, stored_bytes=9000))


async def test_a_small_change_needs_no_new_block(tmp_path: Path) -> None:
    data = bytearray(os.urandom(100_000))
    async with opened(tmp_path, SMALL) as engine:
        first = await put(engine, CHUNK, bytes(data))
        for offset, length in ((5, 10), (99_995, 20), (8192, 4096), (0, 3)):
            payload = os.urandom(length)
            version = await put(engine, CHUNK, payload, offset)
            data[offset : offset + length] = payload
            assert version.block == first.block and version.overlay is not None
            assert version.checksum == crc32c(bytes(data)) and version.base_length == 100_000
            assert await read_all(engine, CHUNK) == bytes(data)
        assert engine.space().used_bytes == (1 << 17) + 10 + 20 + 4096 + 3
    async with opened(tmp_path, SMALL) as engine:
        assert await read_all(engine, CHUNK) == bytes(data)
        assert engine.space().used_bytes == (1 << 17) + 10 + 20 + 4096 + 3


async def test_a_blob_that_is_overwritten_as_a_whole_is_given_up(tmp_path: Path) -> None:
    async with opened(tmp_path, SMALL) as engine:
        await put(engine, CHUNK, bytes(100_000))
        for number in range(20):
            version = await put(engine, CHUNK, bytes([number]) * 4096, 4096)
            assert version.overlay is not None and version.overlay.stored_bytes == 4096
        assert engine._store.blob_bytes == 4096


async def test_small_content_has_no_block(tmp_path: Path) -> None:
    async with opened(tmp_path, SMALL) as engine:
        version = await put(engine, CHUNK, b"a" * 1000)
        assert version.block is None and engine.space().used_bytes == 1000
        version = await put(engine, CHUNK, b"b" * 10, 995)
        assert version.block is None and version.length == 1005
        assert list(engine.foldable) == [CHUNK], "it is not small any more"
        assert await engine.fold(CHUNK)
        assert await read_all(engine, CHUNK) == b"a" * 995 + b"b" * 10
        assert engine.space().used_bytes == 1 << 16
        assert not await engine.fold(CHUNK)
        await change(engine, CHUNK, Kind.TRUNCATE, length=900)
        await put(engine, CHUNK, b"c", 0)
        assert list(engine.foldable) == [CHUNK], "it is small again, and needs no block"
        assert await engine.fold(CHUNK)
        assert engine._store.blob_bytes == 900 and not engine.foldable
        assert engine._files.used_bytes() == engine._files._freed_bytes()


async def test_a_length_that_changes_writes_no_content(tmp_path: Path) -> None:
    async with opened(tmp_path, SMALL) as engine:
        first = await put(engine, CHUNK, b"a" * 100_000)
        cut = await change(engine, CHUNK, Kind.TRUNCATE, length=70_000)
        assert cut.block == first.block and cut.base_length == 70_000
        extended = await change(engine, CHUNK, Kind.EXTEND, length=200_000)
        assert extended.block == first.block and extended.base_length == 70_000
        assert await read_all(engine, CHUNK) == b"a" * 70_000 + bytes(130_000)
        smaller = await change(engine, CHUNK, Kind.TRUNCATE, length=60_000)
        assert smaller.block not in (None, first.block), "a smaller block is enough"
        same = await change(engine, CHUNK, Kind.EXTEND, length=60_000)
        assert same.block == smaller.block and same.overlay is None


async def test_a_blob_that_is_damaged_is_noticed_and_restored(tmp_path: Path) -> None:
    async with opened(tmp_path, SMALL) as engine:
        await put(engine, CHUNK, b"a" * 100_000)
        version = await put(engine, CHUNK, b"b" * 100, 5000)
        good = b"a" * 5000 + b"b" * 100 + b"a" * 94_900
        table = engine._store._table
        for data in (b"b" * 99 + b"c", b"b" * 99, None):
            table.write({BlobKey(CHUNK, 1).encoded(): data})
            with pytest.raises(CorruptChunk):
                await engine.verify(version)
            with pytest.raises(CorruptChunk):
                await read_all(engine, CHUNK)
            with pytest.raises(CorruptChunk):
                await engine.fold(CHUNK)
            with pytest.raises(CorruptChunk):
                await put(engine, CHUNK, b"x", 4999)
            assert await read_range(engine, version, 8192, 4096) == b"a" * 4096
        await engine.restore(CHUNK, version, good)
        assert await read_all(engine, CHUNK) == good
        assert not engine.foldable and engine._store.blob_bytes == 0


def test_a_full_disk_refuses_deferred_changes_too() -> None:
    async def main() -> None:
        disk = new_disk(capacity_bytes=6_000_000)
        engine = await engine_on(disk)
        await put(engine, CHUNK, bytes(100_000))
        with pytest.raises(NoSpace):
            for number in range(1, 10_000):
                await put(engine, ChunkId(8, number), b"x" * 3000)
        assert engine.failure is None
        assert disk.free_bytes() >= 100_000
        await change(engine, ChunkId(8, 1), Kind.REMOVE)

    simulate(main())
