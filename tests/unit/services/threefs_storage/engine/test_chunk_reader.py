import asyncio
import os
from pathlib import Path

import pytest
from threefs_storage.engine.chunk_record import Version
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.engine.engine_settings import EngineSettings

from tests.harness.chunk_engine import NO_OVERLAYS, opened, put
from tests.harness.simulated.disk import SimDisk
from tests.harness.simulated_disk import engine_on, new_disk, simulate
from threefs.checksums import crc32c
from threefs.env.buffers import BufferPool
from threefs.errors import CorruptChunk, InvalidArgument
from threefs.ids import ChunkId

CHUNK = ChunkId(7, 0)
MIB = 1 << 20
BLOCKS_ONLY = EngineSettings(overlay=NO_OVERLAYS)

RANGES = [
    (0, MIB),
    (0, 4096),
    (4096, 4096),
    (MIB - 4096, 4096),
    (0, 1),
    (4095, 2),
    (100_000, 200_000),
    (65536, 65536),
    (8192, 12_288),
    (MIB - 1, 1),
    (5, MIB - 10),
    (0, 0),
    (MIB, 0),
    (4096, 0),
]


@pytest.mark.parametrize("length", [MIB, MIB - 1000])
async def test_every_range_is_read_by_every_way(tmp_path: Path, length: int) -> None:
    data = os.urandom(length)
    async with opened(tmp_path) as engine:
        version = await put(engine, CHUNK, data)
        memory = BufferPool().take(MIB)
        for offset, count in RANGES:
            offset, end = min(offset, length), min(offset + count, length)
            for into in (memory[: end - offset], memoryview(bytearray(end - offset))):
                for _ in range(3):  # past the page cache, through it, and from it
                    into[:] = bytes(len(into))
                    assert await engine.read_cold(version, offset, into) == crc32c(into)
                    assert into == data[offset:end]
                    into[:] = bytes(len(into))
                    checksum = engine.read(version, offset, into)
                    if checksum is not None:
                        assert into == data[offset:end]
                        assert checksum == crc32c(into)


async def test_a_range_that_was_read_twice_is_in_memory(tmp_path: Path) -> None:
    async with opened(tmp_path) as engine:
        version = await put(engine, CHUNK, os.urandom(MIB))
        into = BufferPool().take(MIB)
        assert engine.read(version, 0, into) is None, "a large write goes past the page cache"
        await engine.read_cold(version, 0, into)
        assert engine.read(version, 0, into) is None, "and so does the first large read"
        await engine.read_cold(version, 0, into)
        if engine.read(version, 0, into) is None:
            pytest.skip("this file system cannot tell what is in memory")


@pytest.mark.parametrize(("offset", "length"), [(MIB - 10, 11), (MIB, 1), (MIB + 5, 0), (1 << 40, 4096)])
async def test_a_range_beyond_the_end_is_refused(tmp_path: Path, offset: int, length: int) -> None:
    async with opened(tmp_path) as engine:
        version = await put(engine, CHUNK, os.urandom(MIB))
        into = memoryview(bytearray(length))
        with pytest.raises(InvalidArgument):
            engine.read(version, offset, into)
        with pytest.raises(InvalidArgument):
            await engine.read_cold(version, offset, into)


async def simulated(cold: float, data: bytes) -> tuple[ChunkEngine, SimDisk, Version]:
    disk = new_disk()
    disk.cold = cold
    engine = await engine_on(disk, settings=BLOCKS_ONLY)
    return engine, disk, await put(engine, CHUNK, data)


@pytest.mark.parametrize("cold", [0.0, 1.0])
@pytest.mark.parametrize(("offset", "length"), [(0, 10_000), (4096, 4096), (5000, 10), (8192, 1808)])
def test_every_flipped_bit_in_the_data_is_detected(cold: float, offset: int, length: int) -> None:
    data = os.urandom(10_000)

    async def main() -> None:
        engine, disk, version = await simulated(cold, data)
        (file,) = disk.files.values()
        into = memoryview(bytearray(length))
        for bit in range(offset * 8, (offset + length) * 8, 37):
            file.flip(bit)
            with pytest.raises(CorruptChunk):
                if engine.read(version, offset, into) is None:
                    await engine.read_cold(version, offset, into)
            file.flip(bit)
        file.flip(12_000 * 8)  # behind the content: nobody cares
        if engine.read(version, offset, into) is None:
            await engine.read_cold(version, offset, into)
        assert into == data[offset : offset + length]

    simulate(main())


def test_a_block_is_pinned_while_it_is_read() -> None:
    async def main() -> None:
        engine, disk, version = await simulated(1.0, b"a" * 10_000)
        disk.dragging = (9.0, 9.0)
        into = memoryview(bytearray(10_000))
        reading = asyncio.ensure_future(engine.read_cold(version, 0, into))
        await asyncio.sleep(0)
        disk.dragging = None
        for number in range(4):  # the block of the first version is freed, and would be taken by a later one
            await put(engine, CHUNK, bytes([number]) * 10_000)
            await put(engine, ChunkId(8, number), b"x" * 10_000)
        assert not reading.done()
        assert await reading == crc32c(b"a" * 10_000)

    simulate(main())


async def test_a_pin_keeps_a_version_readable(tmp_path: Path) -> None:
    async with opened(tmp_path) as engine:
        first = await put(engine, CHUNK, b"a" * 100_000)
        engine.pin(first)
        for number in range(5):
            await put(engine, CHUNK, bytes([number]) * 100_000)
        into = memoryview(bytearray(100_000))
        await engine.read_cold(first, 0, into)
        assert into == b"a" * 100_000
        engine.unpin(first)
        for number in range(3):
            await put(engine, CHUNK, bytes([number]) * 100_000)
        with pytest.raises(CorruptChunk):
            await engine.read_cold(first, 0, into)


async def test_raw_bytes_are_as_they_are_and_say_what_the_block_has(tmp_path: Path) -> None:
    data = bytes(range(250)) * 400
    async with opened(tmp_path) as engine:
        await put(engine, CHUNK, data)
        await put(engine, CHUNK, b"change", 5000)
        version = await put(engine, CHUNK, b"behind the end", len(data))
        assert version.overlay is not None and version.block is not None
        into = memoryview(bytearray(version.length))
        ranges, *blobs = await engine.read_raw(version, into)
        assert into == data[:5000] + b"change" + data[5006:] + b"behind the end"
        assert ranges[0] == (0, 5000) and ranges[1][0] == 5006 and ranges[1][1] in (len(data), version.length)
        assert blobs == [[(5000, 5006)], [(len(data), version.length)]]
