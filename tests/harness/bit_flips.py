"""A chunk engine with content of all kinds, and the bits of its files to turn over."""

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from threefs_storage.engine.chunk_record import Block, Record, Version
from threefs_storage.engine.content_plan import Kind
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.engine.engine_settings import EngineSettings

from tests.harness.block_cache import drop_cached_blocks
from tests.harness.chunk_engine import NO_OVERLAYS, change, opened, put, update
from threefs.errors import ThreefsError
from threefs.ids import ChunkId, WriteIdentity
from threefs.kv.table import Table

_ALL_KEYS = (b"", b"\xff" * 32)
SIZES = (1, 100, 4096, 65_536, 65_537, 300_000, 1 << 20)


@dataclass(slots=True)
class Sample:
    """What was acknowledged, and where it lies."""

    crashed: Path  # a target as kill -9 leaves it, with all records in the log
    closed: Path  # the same, with all records in sorted files
    used: Path  # the same, for an engine to open
    pairs: dict[bytes, bytes] = field(default_factory=dict)  # rows of the record table
    records: dict[ChunkId, Record] = field(default_factory=dict)
    contents: list[tuple[Version, bytes]] = field(default_factory=list)  # of versions that are in blocks

    def data_file(self, block: Block) -> Path:
        return self.used / "blocks" / f"{1 << block.bits >> 10}KiB.blocks"


async def build(directory: Path, dice: random.Random) -> Sample:
    """All that is in it was acknowledged."""
    source = directory / "source"
    sample = Sample(directory / "crashed", directory / "closed", directory / "used")
    async with opened(source) as engine:  # small content and small changes, in the record store
        for number, size in enumerate(SIZES[:4]):
            await _fill(engine, ChunkId(6, number), size, dice)
    async with opened(source, EngineSettings(overlay=NO_OVERLAYS)) as engine:
        gone = ChunkId(8, 0)
        await put(engine, gone, dice.randbytes(5000))
        await change(engine, gone, Kind.REMOVE)
        # The last of these ends with a pending version, which makes all commits before it durable too.
        for number, size in enumerate(SIZES):
            await _fill(engine, ChunkId(7, number), size, dice)
        await _note_contents(engine, sample)
        for copy in (sample.crashed, sample.closed, sample.used):
            shutil.copytree(source, copy)
    sample.pairs = await table_pairs(_copy(sample.crashed / "records", directory / "pairs"))
    await _sort(sample.closed / "records")
    return sample


async def _fill(engine: ChunkEngine, chunk: ChunkId, size: int, dice: random.Random) -> None:
    identity = WriteIdentity(dice.randbytes(16), 3, 9)
    first = update(engine, chunk, Kind.WRITE, old := dice.randbytes(size), identity=identity)
    await engine.stage(chunk, first, payload=old)
    engine.commit(chunk, first.version, 1)
    await change(engine, chunk, Kind.WRITE, dice.randbytes(max(1, size // 3)), offset=size // 2)
    if chunk.number % 2 == 0:
        payload = dice.randbytes(size)
        await engine.stage(chunk, update(engine, chunk, Kind.WRITE, payload), payload=payload)


async def _note_contents(engine: ChunkEngine, sample: Sample) -> None:
    for chunk, record in engine.inventory(None, 1000):
        assert record is not None
        sample.records[chunk] = record
        for version in (record.committed, record.pending):
            if version is not None and version.block is not None and version.overlay is None:
                into = memoryview(bytearray(version.length))
                await engine.read_cold(version, 0, into)
                sample.contents.append((version, bytes(into)))


async def _sort(records: Path) -> None:
    """Opening moves what is in the log to a sorted file; a second time leaves nothing in the log."""
    for _ in range(2):
        await (await Table.open(records)).close()


def _copy(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target


async def table_pairs(directory: Path) -> dict[bytes, bytes]:
    table = await Table.open(directory)
    try:
        return dict(table.scan(*_ALL_KEYS))
    finally:
        await table.close()


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes((byte ^ 1 << bit % 8,)))


async def table_after_flip(records: Path, name: str, bit: int, place: Path) -> dict[bytes, bytes] | None:
    """The rows that the table shows with one bit turned over; None if it told of the damage."""
    _copy(records, place)
    flip(place / name, bit)
    drop_cached_blocks()  # of other copies of the same file
    try:
        return await table_pairs(place)
    except ThreefsError:
        return None
