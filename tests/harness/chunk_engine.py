"""Opening and using a chunk engine in tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from threefs_storage.engine.chunk_record import Version
from threefs_storage.engine.content_plan import Kind, Update
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.engine.engine_settings import EngineSettings
from threefs_storage.engine.exactly_once import OnceEntry
from threefs_storage.engine.overlay import OverlayLimits
from threefs_storage.engine.record_store import live_version

from threefs.checksums import crc32c
from threefs.env.disk import RealDisk
from threefs.ids import ChunkId, WriteIdentity

#: All content is in blocks.
NO_OVERLAYS = OverlayLimits(deferred_bytes=0)


@asynccontextmanager
async def opened(directory: Path, settings: EngineSettings | None = None) -> AsyncIterator[ChunkEngine]:
    disk = RealDisk(threads=4)
    try:
        engine = await ChunkEngine.open(directory, disk, settings)
        try:
            yield engine
        finally:
            await engine.close()
    finally:
        await disk.close()


def update(
    engine: ChunkEngine,
    chunk: ChunkId,
    kind: int,
    payload: bytes = b"",
    *,
    offset: int = 0,
    length: int | None = None,
    version: int | None = None,
    chain_version: int = 1,
    chunk_bytes: int = 1 << 20,
    identity: WriteIdentity | None = None,
    removed: bool = False,
    entries: tuple[OnceEntry, ...] | None = None,
) -> Update:
    """A change that fits what the engine has committed."""
    record = engine.record(chunk)
    committed = record.committed if record is not None else None
    return Update(
        kind=kind,
        version=version if version is not None else (committed.version if committed else 0) + 1,
        chain_version=chain_version,
        offset=offset,
        length=len(payload) if length is None else length,
        checksum=crc32c(payload),
        chunk_bytes=chunk_bytes,
        identity=identity,
        removed=removed,
        entries=entries,
    )


async def put(engine: ChunkEngine, chunk: ChunkId, payload: bytes, offset: int = 0) -> Version:
    """Write and commit."""
    return await change(engine, chunk, Kind.WRITE, payload, offset=offset)


async def change(
    engine: ChunkEngine, chunk: ChunkId, kind: int, payload: bytes = b"", *, offset: int = 0, length: int | None = None
) -> Version:
    """Stage and commit."""
    wanted = update(engine, chunk, kind, payload, offset=offset, length=length)
    await engine.stage(chunk, wanted, payload=payload)
    return engine.commit(chunk, wanted.version, wanted.chain_version)


async def read_range(engine: ChunkEngine, version: Version, offset: int, length: int) -> bytes:
    into = memoryview(bytearray(length))
    checksum = engine.read(version, offset, into)
    if checksum is None:
        checksum = await engine.read_cold(version, offset, into)
    assert checksum == crc32c(into)
    return bytes(into)


async def read_all(engine: ChunkEngine, chunk: ChunkId) -> bytes | None:
    """The committed content, None if the chunk does not exist."""
    version = live_version(engine.record(chunk))
    return None if version is None else await read_range(engine, version, 0, version.length)
